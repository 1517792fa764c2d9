"""The slowest right answer: no cache, no batch, one whole forward a token."""

from collections.abc import Callable
from math import prod

import torch

from citer.decoding.policy import Policy, StepView
from citer.decoding.walk import Request, stable_hash
from citer.models.pair import LanguageModel, Pair

Scorer = Callable[[StepView], torch.Tensor]


def next_hidden(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model.last_hidden(input_ids=torch.tensor([ids]), use_cache=False)[:, -1]


def next_logits(pair: Pair, model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model.logits(next_hidden(model, ids))[0, : pair.vocab_size]


class Uncached:
    """A policy as its definition says, a token at a time."""

    def __init__(self, pair: Pair, request: Request, policy: Policy, max_new_tokens: int) -> None:
        self.pair, self.request, self.policy = pair, request, policy
        self.max_new_tokens = max_new_tokens
        self.ids = [*request.prompt_ids, *request.prefix_ids]
        self.begin = len(self.ids)
        self.by_llm: list[bool] = []
        self.pending: list[float] = []  # scores
        self.undone = 0  # tokens of the SLM that were rolled back

    @property
    def written(self) -> list[int]:
        return self.ids[self.begin :]

    def run(self) -> "Uncached":
        rule = self.policy.rule
        while not self.ended():
            if not rule.asks_slm:
                self.visit()
                continue
            token, score = self.draft()
            if rule.visit == "score" and score < rule.at:
                self.visit()
                continue
            self.write(token, by_llm=False)
            self.pending.append(score)
            risky = rule.visit == "risk" and prod(self.pending) < rule.at
            many = rule.visit == "every" and len(self.pending) >= rule.at
            last = rule.audit == 1 and self.ended()
            if risky or many or last:
                self.visit()
        return self

    def ended(self) -> bool:
        return bool(self.written) and (
            self.ids[-1] in self.pair.eos_ids or len(self.written) == self.max_new_tokens
        )

    def draft(self) -> tuple[int, float]:
        hidden = next_hidden(self.pair.slm, self.ids)
        logits = self.pair.slm.logits(hidden)
        seed = torch.tensor([stable_hash(self.request.key)])
        position = torch.tensor([len(self.ids) - len(self.request.prompt_ids)])
        score = self.policy.scorer(StepView(hidden, logits, seed, position))
        return int(logits[0, : self.pair.vocab_size].argmax()), float(score)

    def visit(self) -> None:
        for place in range(len(self.ids) - len(self.pending), len(self.ids)):
            logits = next_logits(self.pair, self.pair.llm, self.ids[:place])
            chance = logits.softmax(-1)
            best, token = int(logits.argmax()), self.ids[place]
            beta = self.policy.rule.audit
            if token != best and (beta == 1 or chance[token] < beta * chance[best]):
                self.undone += len(self.ids) - place
                del self.ids[place:], self.by_llm[place - self.begin :]
                break
        self.pending = []
        if not self.ended():
            logits = next_logits(self.pair, self.pair.llm, self.ids)
            self.write(int(logits.argmax()), by_llm=True)

    def write(self, token: int, by_llm: bool) -> None:
        self.ids.append(token)
        self.by_llm.append(by_llm)


def uncached(
    pair: Pair, request: Request, policy: Policy, max_new_tokens: int
) -> tuple[list[int], list[bool]]:
    """Tokens and their origins."""
    plain = Uncached(pair, request, policy, max_new_tokens).run()
    return plain.written, plain.by_llm


def scheduled(salt: int, levels: int = 1_000_003) -> Scorer:
    """A pseudo-random score by request and position alone: any schedule of visits may come."""

    def score(view: StepView) -> torch.Tensor:
        mixed = (view.seed_N % 1_000_003) * 7919 + (view.position_N + salt) * 104_729
        return (mixed * 2_654_435_761 % 1_000_003 % levels).double() / levels

    return score


random_scorer = scheduled(0)
