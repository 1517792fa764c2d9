"""A request, checked in full before it takes a place in the queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from citer.config.params import SamplingParams
from citer.data.problems import Problem
from citer.data.prompts import token_ids
from citer.decoding.answer import Request
from citer.decoding.policy import Policy
from citer.errors import InputError
from citer.models.pair import Pair
from citer.models.room import check_characters
from citer.models.sampling import stable_hash
from citer.serving.deployment import Deployment, Observer, Reply
from citer.serving.server.errors import bad_request
from citer.serving.server.fields import Asked, Chat, Completion
from citer.serving.server.releases import Release
from citer.serving.server.replies import ChatForm, Form, TextForm
from citer.serving.server.text import TextStream
from citer.serving.server.worker import Done, Ticket

LONG = "context_length_exceeded"


@dataclass(frozen=True, eq=False)
class Call:
    """A request that can be answered, and the form of its reply. `problem` is None if no chat."""

    ticket: Ticket
    form: Form
    problem: Problem | None
    observers: Sequence[Observer]

    @property
    def pair(self) -> Pair:
        return self.ticket.engine.pair

    def text(self, done: Done) -> str:
        return self.pair.text(done.answer.token_ids, self.ticket.request.stop)

    def stream(self) -> TextStream:
        return TextStream(self.pair, self.ticket.request.stop)

    def reply(self, done: Done) -> Reply | None:
        """Return what observers see, or None: they see chats only."""
        if self.problem is None:
            return None
        return Reply(self.problem, done.answer, self.text(done), self.ticket.request.sampling)


def make_call(asked: Asked, release: Release, name: str, default: SamplingParams | None) -> Call:
    """Check a request to the model `name`. `default` says how answers are sampled.

    Raises InputError or ApiError.
    """
    if asked.model != name:
        raise bad_request(f"model: {asked.model!r}; expected {name!r}", 404, "model_not_found")
    if asked.stream and asked.wants_logprobs:
        raise InputError("logprobs: asked with `stream`; expected one of both")
    deployment, rule = release.deployment, asked.rule or release.deployment.rule
    prompt_ids, problem, key = _prompt(asked, release)
    sampling = asked.sampler(default).sampling(key)
    request = Request("prompt", prompt_ids, (), None, sampling, asked.stops, asked.limit)
    policy = deployment.policy(rule)
    _check(request, policy, deployment)
    ticket = Ticket(deployment.engine, request, policy, bool(asked.stream), asked.wants_logprobs)
    form = (ChatForm if problem else TextForm)(name, release.version, rule, len(prompt_ids))
    return Call(ticket, form, problem, release.observers)


def _check(request: Request, policy: Policy, deployment: Deployment) -> None:
    """Raise ApiError if the engine refuses the request. OpenAI has a code for a long one."""
    new_tokens = request.max_new_tokens or deployment.max_new_tokens
    too_long = len(request.prompt_ids) + new_tokens > deployment.pair.context
    try:
        deployment.engine.check(request)
    except InputError as error:
        raise bad_request(str(error), code=LONG if too_long else None) from None


def _prompt(asked: Asked, release: Release) -> tuple[tuple[int, ...], Problem | None, str]:
    """Return the prompt, the problem of a chat, and a key that only equal prompts share."""
    pair = release.deployment.pair
    if isinstance(asked, Chat):
        problem = asked.problem(release.deployment.tasks)
        _check_length(problem.characters, pair)
        return tuple(pair.prompts.prompt_ids(problem)), problem, problem.problem_id
    assert isinstance(asked, Completion)
    prompt = asked.single_prompt(pair.vocabulary.size)
    if isinstance(prompt, str):
        _check_length(len(prompt), pair)
        prompt = token_ids(prompt, pair.tokenizer, begins=True)
    return tuple(prompt), None, str(stable_hash(str(tuple(prompt))))


def _check_length(characters: int, pair: Pair) -> None:
    """Raise ApiError for a text that cannot fit: to encode it would hold up others."""
    try:
        check_characters("prompt", characters, pair.context)
    except InputError as error:
        raise bad_request(str(error), code=LONG) from None
