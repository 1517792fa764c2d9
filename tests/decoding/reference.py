"""A slow reference decoder: no cache, no batch, one whole forward per token."""

from collections.abc import Callable, Iterable
from itertools import pairwise, takewhile
from math import prod

import torch

from citer.decoding.answer import Answer, Disagreement, Request, Visit, Work
from citer.decoding.policy import Policy, StepView
from citer.models.pair import LanguageModel, Pair
from citer.models.sampling import Sampling, stable_hash
from tests.noise import noisy

Scorer = Callable[[StepView], torch.Tensor]


def by_llm(answer: Answer) -> tuple[bool, ...]:
    """Return of each token whether the LLM wrote it."""
    return tuple(writer == "llm" for writer in answer.writers)


def by_score(writers: str) -> list[Visit]:
    """Make the visits of CITER from a text such as `SLS`: at each L the LLM replaces a draft."""
    places = [-1, *(n for n, writer in enumerate(writers) if writer == "L")]
    return [Visit(place - last, place, place) for last, place in pairwise(places)]


def copied(ids: list[int]) -> tuple[int, float] | None:
    """Return what followed the longest ending of 2 to 8 tokens where it last stood before."""
    for n in range(8, 1, -1):
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - n : end] == ids[-n:]:
                return ids[end], n / (n + 1)
    return None


def next_hidden(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model.last_hidden(input_ids=torch.tensor([ids]), use_cache=False)[:, -1]


def next_logits(
    pair: Pair, model: LanguageModel, ids: list[int], sampling: Sampling | None = None
) -> torch.Tensor:
    """Return logits_V of the ids that both models have, or perturbed ones to sample."""
    logits_NV = model.logits(next_hidden(model, ids))
    logits_NV = logits_NV[:, : min(pair.slm.vocab_size, pair.llm.vocab_size)]
    return choices(pair, noisy(logits_NV, sampling, len(ids)))[0]


def choices(pair: Pair, logits_NV: torch.Tensor) -> torch.Tensor:
    """Let the first EOS stand for every EOS."""
    logits_NV = logits_NV.clone()
    end_N = logits_NV[:, list(pair.eos_ids)].amax(1)
    logits_NV[:, list(pair.eos_ids)] = torch.finfo(logits_NV.dtype).min
    logits_NV[:, pair.eos_ids[0]] = end_N
    return logits_NV


def by_first_eos(pair: Pair, ids: list[int]) -> list[int]:
    return [pair.eos_ids[0] if token in pair.eos_ids else token for token in ids]


class Reader:
    """Counts a model's work on one answer. A model keeps the longest prefix still valid."""

    def __init__(self) -> None:
        self.work = Work()
        self.held: list[int] = []

    def read(self, ids: list[int]) -> None:
        both = zip(self.held, ids, strict=False)
        kept = sum(1 for _ in takewhile(lambda tokens: tokens[0] == tokens[1], both))
        self.work.add(len(ids) - kept, len(ids))
        self.held = list(ids)


class Uncached:
    """Decodes one answer by the definition of a policy, one token at a time."""

    def __init__(self, pair: Pair, request: Request, policy: Policy, max_new_tokens: int) -> None:
        self.pair, self.request, self.policy = pair, request, policy
        self.max_new_tokens = max_new_tokens
        self.ids = [*request.prompt_ids, *request.prefix_ids]
        self.begin = len(self.ids)
        self.by_llm: list[bool] = []
        self.pending: list[float] = []  # scores
        self.drafted = 0  # since the last visit
        self.copied: list[int] = []  # the same
        self.undone = 0  # tokens of the SLM that were rolled back
        self.visits: list[Visit] = []
        self.slm, self.llm = Reader(), Reader()

    @property
    def written(self) -> list[int]:
        return self.ids[self.begin :]

    def run(self) -> "Uncached":
        rule = self.policy.rule
        if rule.cap:
            self.visit()
        while not self.ended():
            if not rule.asks_slm:
                self.visit()
                continue
            if not (draft := self.draft()):
                self.visit()
                continue
            token, score = draft
            if rule.visit == "score" and score < rule.at:
                self.visit()
                continue
            self.write(token, by_llm=False)
            self.pending.append(score)
            audited = rule.audit > 0 or not self.ended()
            always = (rule.exact or rule.cap or rule.draft != "slm") and self.ended()
            if always or (audited and self.calls()):
                self.visit()
        return self

    def calls(self) -> bool:
        rule = self.policy.rule
        if rule.cap and len(self.pending) >= rule.cap:
            return True
        if rule.visit == "risk":
            return prod(self.pending) < rule.at
        return rule.visit == "every" and len(self.pending) >= rule.at

    def ended(self) -> bool:
        return bool(self.written) and (self.complete() or len(self.written) == self.max_new_tokens)

    def complete(self) -> bool:
        text = self.pair.tokenizer.decode(self.ids[len(self.request.prompt_ids) :])
        stopped = any(stop in text for stop in self.pair.prompts.stop)
        return stopped or self.ids[-1] in self.pair.eos_ids

    def draft(self) -> tuple[int, float] | None:
        if self.policy.rule.draft != "slm" and (found := copied(self.ids)):
            self.copied.append(len(self.written))
            return found
        if self.policy.rule.draft == "lookup":
            return None
        self.slm.read(self.ids)
        self.drafted += 1
        hidden, logits = next_hidden(self.pair.slm, self.ids), self.next_logits(self.pair.slm)
        seed = torch.tensor([stable_hash(self.request.key)])
        position = torch.tensor([len(self.ids) - len(self.request.prompt_ids)])
        score = self.policy.scorer(StepView(hidden, logits[None], seed, position))
        return int(logits.argmax()), float(score)

    def next_logits(self, model: LanguageModel, end: int | None = None) -> torch.Tensor:
        return next_logits(self.pair, model, self.ids[:end], self.request.sampling)

    def visit(self) -> None:
        """Let the LLM audit the pending tokens and, unless the answer has ended, write the next."""
        seen = len(self.written) - self.ended()
        self.llm.read(self.ids[: self.begin + seen])
        audited, disagreements = self.audit() if self.policy.rule.audit else (0, [])
        self.visits.append(
            Visit(
                self.drafted,
                seen,
                len(self.written),
                audited,
                tuple(disagreements),
                tuple(self.copied),
            )
        )
        self.pending, self.drafted, self.copied = [], 0, []
        if not self.ended():
            self.write(int(self.next_logits(self.pair.llm).argmax()), by_llm=True)

    def audit(self) -> tuple[int, list[Disagreement]]:
        """Return the number of audited tokens, and those that are not the LLM's choice.

        Both of the SLM's tokens only.
        """
        disagreements, audited = [], 0
        places = range(len(self.ids) - len(self.pending), len(self.ids))
        for place in places:
            chance = self.next_logits(self.pair.llm, place).softmax(-1)
            best, token = int(chance.argmax()), self.ids[place]
            by_slm = place - self.begin not in self.copied
            audited += by_slm
            if token == best:
                continue
            odds = float(chance[token] / chance[best])
            if by_slm:
                disagreements.append(Disagreement(place - self.begin, token, best, odds))
            if odds < self.policy.rule.audit or self.policy.rule.exact:
                self.undone += len(self.ids) - place
                del self.ids[place:], self.by_llm[place - self.begin :]
                return audited, disagreements
        return audited, disagreements

    def write(self, token: int, by_llm: bool) -> None:
        self.ids.append(token)
        self.by_llm.append(by_llm)


def rounded(visits: Iterable[Visit]) -> list[Visit]:
    """Round the odds of visits, so that they do not depend on the batch."""
    return [
        visit._replace(
            disagreements=tuple(
                each._replace(odds=round(each.odds, 7)) for each in visit.disagreements
            )
        )
        for visit in visits
    ]


def uncached(
    pair: Pair, request: Request, policy: Policy, max_new_tokens: int
) -> tuple[list[int], list[bool]]:
    """Return the tokens, and for each of them whether the LLM wrote it."""
    plain = Uncached(pair, request, policy, max_new_tokens).run()
    return plain.written, plain.by_llm


def scheduled(salt: int, levels: int = 1_000_003) -> Scorer:
    """Make a scorer whose pseudo-random scores depend on request and position only."""

    def score(view: StepView) -> torch.Tensor:
        mixed = (view.seed_N % 1_000_003) * 7919 + (view.position_N + salt) * 104_729
        return (mixed * 2_654_435_761 % 1_000_003 % levels).double() / levels

    return score


random_scorer = scheduled(0)
