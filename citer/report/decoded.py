"""Decode some test questions by the deployed rule, and keep what each model says at each token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

from citer.config.params import Params
from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, assess
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy
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
        asked = [request(problem, self.pair, self.sampler) for problem in problems]
        answers = {answer.key: answer for answer in self.engine.decode(asked, self.policy)}
        decoded: list[Decoded] = []
        for problem in problems:
            decoded.append(self._decoded(problem, answers[problem.problem_id]))
            advance(1)
        return decoded

    def _decoded(self, problem: Problem, answer: Answer) -> Decoded:
        grade = WRONG if answer.truncated else assess(problem, self.pair.text(answer.token_ids))
        return Decoded(
            problem_id=problem.problem_id,
            question=problem.question,
            choices=[f"{choice.label}) {choice.text}" for choice in problem.choices or ()],
            expected=problem.answer,
            correct=grade.correct,
            truncated=answer.truncated,
            tokens=list(self._tokens(request(problem, self.pair, self.sampler), answer)),
        )

    def _tokens(self, asked: Request, answer: Answer) -> Iterator[Token]:
        slm, llm = (choices(verifier, asked, answer.token_ids) for verifier in self._verifiers)
        rejected = self._rejected(asked, answer)
        written = zip(answer.token_ids, answer.writers, answer.scores, slm, llm, strict=True)
        for position, (token, by, score, slms, llms) in enumerate(written):
            before, dropped = answer.token_ids[:position], rejected.get(position, ())
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

    def _rejected(self, asked: Request, answer: Answer) -> dict[int, tuple[int, ...]]:
        """Return the drafts that each audit rejected, by the position of the first.

        An answer records the first one only. The SLM wrote those after it, so it writes them again.
        """
        drafts: dict[int, tuple[int, ...]] = {}
        for visit in answer.visits:
            if visit.rejects:
                first = visit.disagreements[-1].slm_token
                drafts[visit.kept] = (first,)
                kept = (*answer.token_ids[: visit.kept], first)
                if (most := visit.seen - len(kept)) > 0:
                    further = replace(asked, prefix_ids=kept, max_new_tokens=most)
                    (more,) = self.engine.decode([further], SLM_ALONE)
                    drafts[visit.kept] += more.token_ids
        return drafts

    def _text(self, before: Sequence[int], token: int) -> str:
        """Decode a token after others: some tokenizers drop the space before a first word."""
        decode, context = self.pair.tokenizer.decode, list(before[-1:])
        return str(decode([*context, token]))[len(str(decode(context))) :]
