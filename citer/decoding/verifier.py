"""The interface of the LLM. `LocalVerifier` runs a loaded model; another one may run elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from citer.decoding.answer import Trunk, Work
from citer.decoding.runner import Held, Ids, MakeGraphs, ModelRunner
from citer.models.cache import Row
from citer.models.folder import ModelCard
from citer.models.pair import LanguageModel, Predicted, Text, predict
from citer.models.sampling import Sampling, noise
from citer.models.vocabulary import Vocabulary


class Verdict(NamedTuple):
    """The LLM's choice at a position, and the odds of the sequence's token there.

    Odds are p(token) / p(choice), in [0, 1], or None if the sequence has no token there yet.
    """

    token: int
    odds: float | None


class Query(NamedTuple):
    """A sequence to judge, with one verdict for each position from `first` to `len(ids)`.

    `ids` begins with the prompt and is read. `draft` is the token at position `len(ids)`, or None
    if there is none yet. It is judged, but not read. The other fields are for a verifier that keeps
    a cache per slot: the slot holds the first `kept` tokens of `ids` from the query before, and an
    empty one may start from `trunk`.
    """

    ids: Ids
    first: int
    draft: int | None = None
    sampling: Sampling | None = None
    slot: int = 0
    kept: int = 0
    trunk: Trunk | None = None

    @property
    def judged_tokens(self) -> list[int | None]:
        """The token at each judged position."""
        return [*self.ids[self.first :], self.draft]


class ForcedScores(NamedTuple):
    """Teacher-forced scores of N positions, on the CPU."""

    token_N: Tensor  # int32, the LLM's choice
    logprob_N: Tensor  # float32, of the text's token, in nats


class Verifier(Protocol):
    """The LLM. It chooses the largest logit of the vocabulary, perturbed if the query samples.

    A verifier with a cache per slot serves one engine at a time, and needs as many slots.
    """

    @property
    def card(self) -> ModelCard: ...

    @property
    def work(self) -> Work:
        """The work of all calls of `verdicts` so far."""

    def verdicts(self, queries: Sequence[Query]) -> list[list[Verdict]]:
        """Return the verdicts of each query. No two queries may have the same slot."""

    def score(self, texts: Sequence[Text]) -> ForcedScores:
        """Score the tokens of each text from `first` on, text after text.

        Raises InputError if the logits are not finite.
        """


@dataclass(frozen=True)
class Verdicts:
    """Computes the LLM's choice and the odds of a given token from hidden states."""

    model: LanguageModel
    vocabulary: Vocabulary

    def __call__(self, hidden_MH: Tensor, given_M1: Tensor, noise_R6: Tensor) -> Tensor:
        """Return verdict_M2 in float64, the choice and the odds of the given token."""
        logits_MV = self.vocabulary.choices(self.model.logits(hidden_MH), noise_R6)
        best_M, choice_M = logits_MV.max(-1)
        odds_M = (logits_MV.gather(1, given_M1).squeeze(1) - best_M).exp()
        return torch.stack([choice_M.double(), odds_M.double()], 1)


class LocalVerifier:
    """A verifier in this process: a loaded model with a cache of `slots` sequences.

    Call it under `torch.inference_mode()`.
    """

    def __init__(
        self, model: LanguageModel, vocabulary: Vocabulary, slots: int, make_graphs: MakeGraphs
    ) -> None:
        self._settings = (model, vocabulary, slots, make_graphs)
        self._runner = ModelRunner(model, slots, make_graphs)
        self._read = Verdicts(model, vocabulary)

    def __reduce__(self) -> tuple[type["LocalVerifier"], tuple[Any, ...]]:
        """Pickle the model and the settings only. An unpickled verifier has an empty cache."""
        return LocalVerifier, self._settings

    @property
    def card(self) -> ModelCard:
        return self._runner.model.card

    @property
    def work(self) -> Work:
        return self._runner.total

    def verdicts(self, queries: Sequence[Query]) -> list[list[Verdict]]:
        self._runner.prepare([Held(query.slot, query.kept, query.trunk) for query in queries])
        results = self._runner.consume([_row(query) for query in queries], self._read)
        return [_verdicts(*pair) for pair in zip(queries, results, strict=True)]

    def score(self, texts: Sequence[Text]) -> ForcedScores:
        model, vocabulary, *_ = self._settings
        parts = map(_scores, predict(model, vocabulary, texts))
        return ForcedScores(*map(torch.cat, zip(*parts, strict=True)))


def _row(query: Query) -> Row:
    given = [(token or 0,) for token in query.judged_tokens]
    drawn = noise(query.sampling, range(query.first, len(query.ids) + 1))
    return Row(query.slot, query.ids, given, drawn)


def _verdicts(query: Query, results: Sequence[Sequence[float]]) -> list[Verdict]:
    return [
        Verdict(int(choice), None if token is None else odds)
        for (choice, odds), token in zip(results, query.judged_tokens, strict=True)
    ]


def _scores(predicted: Predicted) -> ForcedScores:
    _, logits_CV, logprob_CV, given_C = predicted
    return ForcedScores(
        logits_CV.argmax(-1).int().cpu(),
        logprob_CV.gather(1, given_C[:, None]).squeeze(1).float().cpu(),
    )
