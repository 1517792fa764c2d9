"""Decode some test questions by the deployed rule, and keep what each model says at each token."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from citer.config.params import Params
from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, assess
from citer.decoding.answer import Answer, Request, Written
from citer.decoding.engine import Engine, Handle, Settled
from citer.decoding.policy import Policy
from citer.decoding.served import verifier_of
from citer.decoding.verifier import Verifier
from citer.evaluation.sweep import choices, request
from citer.executors.base import Executor, Unit
from citer.models.pair import Pair
from citer.models.sampling import Sampler, stable_hash
from citer.progress import Advance, progress
from citer.report.tokens import Decoded, Token, Transcript, count_spoken, kind_of

COUNTED = 100  # questions over which a transcript counts
SHOWN = 10  # of them, with every token


def transcript(
    executor: Executor, pair: Pair, problems: Sequence[Problem], policy: Policy, params: Params
) -> Transcript:
    """Answer at most `COUNTED` of the problems, spread over their tasks, by the deployed policy.

    Of a slow pair only `SHOWN`, since 100 answers may take a quarter of an hour.
    """
    asked = spread(problems, params.seed, SHOWN if pair.is_slow else COUNTED)
    engine = Engine(pair, params.decode.slots, params.decode.max_new_tokens, delayed=True)
    job = _Reader(pair, engine, policy, Sampler(params.evaluate.sampling, params.seed))
    with progress("the deployed rule, token by token", len(asked), "answers") as advance:
        [decoded] = executor.run(job, [Unit("the transcript", asked)], advance)
    spoken = count_spoken(decoded)
    return Transcript(f"{policy.rule:.4g}", len(asked), spoken, decoded[:SHOWN])


def spread(problems: Sequence[Problem], seed: int, most: int) -> list[Problem]:
    """Choose problems of all tasks in turn, within a task by a seeded hash of their ids."""
    by_task: dict[str, list[Problem]] = {problem.task: [] for problem in problems}
    for problem in sorted(problems, key=lambda each: stable_hash(f"{seed} {each.problem_id}")):
        by_task[problem.task].append(problem)
    turns = zip_longest(*(by_task[task] for task in sorted(by_task)))
    return [problem for turn in turns for problem in turn if problem][:most]


@dataclass(frozen=True)
class _Reader:
    """Answers problems, and asks both models for their choice at each position: a job."""

    pair: Pair
    engine: Engine
    policy: Policy
    sampler: Sampler

    @cached_property
    def _verifiers(self) -> list[Verifier]:
        models = self.pair.slm, self.pair.llm
        return [verifier_of(model, self.pair.vocabulary) for model in models]

    def __call__(self, problems: Sequence[Problem], advance: Advance) -> list[Decoded]:
        requests = [request(problem, self.pair, self.sampler) for problem in problems]
        asked = {self.engine.submit(each, self.policy): each for each in requests}
        written: dict[Handle, list[Written]] = defaultdict(list)
        by_id = {problem.problem_id: problem for problem in problems}
        decoded: dict[str, Decoded] = {}
        while len(decoded) < len(problems):
            for event in self.engine.step():
                own = written[event.handle]
                if isinstance(event, Settled):
                    own += event.written
                else:
                    key = asked[event.handle].key
                    tokens = self._tokens(asked[event.handle], event.answer, own)
                    decoded[key] = self._decoded(by_id[key], event.answer, [*tokens])
                    advance(1)
        return [decoded[key] for key in by_id]

    def _decoded(self, problem: Problem, answer: Answer, tokens: list[Token]) -> Decoded:
        grade = WRONG if answer.truncated else assess(problem, self.pair.text(answer.token_ids))
        return Decoded(
            problem_id=problem.problem_id,
            question=problem.question,
            choices=[f"{choice.label}) {choice.text}" for choice in problem.choices or ()],
            expected=problem.answer,
            correct=grade.correct,
            truncated=answer.truncated,
            tokens=tokens,
        )

    def _tokens(
        self, asked: Request, answer: Answer, written: Sequence[Written]
    ) -> Iterator[Token]:
        slm, llm = (choices(verifier, asked, answer.token_ids) for verifier in self._verifiers)
        rejects = {visit.kept: visit.seen - visit.kept for visit in answer.visits if visit.rejects}
        for position, ((token, by, rejected), score, slms, llms) in enumerate(
            zip(written, answer.scores, slm, llm, strict=True)
        ):
            # Drafts that the LLM has not seen are no rejected ones; the first it has judged.
            seen = max(1, rejects[position]) if position in rejects else 0
            before, dropped = answer.token_ids[:position], rejected[:seen]
            draft = next(iter(dropped), token if by == "slm" else slms)
            text = self._text(before, token)
            yield Token(
                text=text,
                kind="EOS" if token in self.pair.eos_ids else kind_of(text),
                by=by,
                score=round(score, 6) if score else None,  # 0: nothing drafted
                slm=self._text(before, draft),
                llm=self._text(before, token if by == "llm" else llms),
                rejected=[
                    self._text((*before, *dropped[:n]), each) for n, each in enumerate(dropped)
                ],
            )

    def _text(self, before: Sequence[int], token: int) -> str:
        """Decode a token after others: some tokenizers drop the space before a first word."""
        decode, context = self.pair.tokenizer.decode, list(before[-1:])
        return str(decode([*context, token]))[len(str(decode(context))) :]
