"""A verifier that asks a vLLM server, by token ids over `/v1/completions`."""

from collections.abc import Sequence
from math import exp, inf, log1p
from typing import cast

import torch

from citer.decoding.answer import Work
from citer.decoding.runner import MakeGraphs
from citer.decoding.verifier import ForcedScores, LocalVerifier, Query, Verdict, Verifier
from citer.errors import InputError
from citer.models.folder import Carded, ModelCard
from citer.models.graphs import no_graphs
from citer.models.pair import LanguageModel, Text
from citer.models.served import LIKELIEST, Chances, Choice, ServedModel
from citer.models.vocabulary import Vocabulary

LEAST = torch.finfo(torch.float32).min  # log-probability of an impossible token
MOST_LOST = 1 - 1e-6  # probability of ids that do not count; rounding could make it 1


class ServedVerifier:
    """Sends all queries of a call in one request, which vLLM batches.

    A query with one judged position asks for the likeliest next tokens: vLLM then computes only
    what its prefix cache lacks. A query with more positions, or with a draft that is not among
    these tokens, asks for the log-probabilities of the prompt. Tokens that the server does not list
    count as impossible. So if several ids end an answer, the odds of EOS are a lower bound. `work`
    counts forwards as if the server kept a cache per slot. Queries must be greedy (`Engine.check`).
    """

    def __init__(self, model: ServedModel, vocabulary: Vocabulary) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self.work = Work()

    @property
    def card(self) -> ModelCard:
        return self._model.card

    def verdicts(self, queries: Sequence[Query]) -> list[list[Verdict]]:
        held = [max(q.kept, q.trunk.shared if q.trunk else 0) for q in queries]
        new = sum(len(q.ids) - kept for q, kept in zip(queries, held, strict=True))
        self.work.add(new, sum(len(q.ids) for q in queries))
        found = self._at_ends(queries)
        found |= self._in_prompts([query for query in queries if query.slot not in found])
        return [found[query.slot] for query in queries]

    def score(self, texts: Sequence[Text]) -> ForcedScores:
        choices = self._read([list(text.ids) for text in texts])
        rows = [
            self.scores(chances, token)
            for (ids, first), choice in zip(texts, choices, strict=True)
            for chances, token in zip(choice.of_prompt(first), ids[first:], strict=True)
        ]
        token_N, logprob_N = map(torch.tensor, zip(*rows, strict=True))
        return ForcedScores(token_N.int(), logprob_N)

    def _at_ends(self, queries: Sequence[Query]) -> dict[int, list[Verdict]]:
        """Return the verdicts of the queries with one position, by slot.

        Leaves out those whose drafts are too unlikely.
        """
        single = [query for query in queries if query.first == len(query.ids)]
        prompts = [list(query.ids) for query in single]
        choices = self._model.complete(prompts, LIKELIEST) if single else []
        return {
            query.slot: [self.verdict(choice.after, query.draft)]
            for query, choice in zip(single, choices, strict=True)
            if query.draft is None or query.draft in self._counted(choice.after)
        }

    def _in_prompts(self, queries: Sequence[Query]) -> dict[int, list[Verdict]]:
        """Return the verdicts of queries whose drafts are appended to their prompts, by slot."""
        drafts = [[] if query.draft is None else [query.draft] for query in queries]
        prompts = [[*query.ids, *draft] for query, draft in zip(queries, drafts, strict=True)]
        found = {}
        for query, choice in zip(queries, self._read(prompts), strict=True):
            chances = [*choice.of_prompt(query.first), choice.after]
            pairs = zip(chances, query.judged_tokens, strict=False)
            found[query.slot] = [self.verdict(*pair) for pair in pairs]
        return found

    def _read(self, prompts: list[list[int]]) -> list[Choice]:
        # So many of the likeliest tokens have two that count, if all are below `size`.
        enough = min(LIKELIEST, len(self._vocabulary.eos_ids) + 1)
        return self._model.complete(prompts, enough, True) if prompts else []

    def verdict(self, chances: Chances, token: int | None) -> Verdict:
        """Read the verdict on a token from the chances at its position."""
        kept = self._counted(chances)
        choice = min(kept, key=lambda each: (-kept[each], each))
        odds = None if token is None else exp(kept.get(token, -inf) - kept[choice])
        return Verdict(choice, odds)

    def scores(self, chances: Chances, token: int) -> tuple[int, float]:
        """Return the fields of `ForcedScores`. Ids that do not count have no probability."""
        kept = self._counted(chances)
        lost = sum(map(exp, chances.values())) - sum(map(exp, kept.values()))
        logprob = kept.get(token, LEAST) - log1p(-min(lost, MOST_LOST))
        return self.verdict(chances, token).token, logprob

    def _counted(self, chances: Chances) -> Chances:
        """Keep the ids of the vocabulary. The first EOS gets the largest value of all of them."""
        size, ends = self._vocabulary
        kept = {token: each for token, each in chances.items() if token < size}
        end = max(kept.pop(end, -inf) for end in ends)
        if end > -inf:
            kept[ends[0]] = end
        if len(kept) < 2:
            expected = f"expected two of the likeliest tokens below {size}, the SLM's vocabulary"
            raise InputError(f"{self._model.server}: {expected}; got {sorted(chances)}")
        return kept


def verifier_of(
    llm: LanguageModel | Carded,
    vocabulary: Vocabulary,
    slots: int = 1,
    make_graphs: MakeGraphs = no_graphs,
) -> Verifier:
    """Return the verifier for an LLM: loaded here, run by a server, or a verifier itself."""
    if isinstance(llm, LanguageModel):
        return LocalVerifier(llm, vocabulary, slots, make_graphs)
    return ServedVerifier(llm, vocabulary) if isinstance(llm, ServedModel) else cast(Verifier, llm)
