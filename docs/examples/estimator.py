"""Which score should end a round of drafts when all text is the LLM's own?

    python docs/examples/estimator.py FOLDER

FOLDER: a project in which `citer run` has ended. The SLM reads the LLM's answers to its test
questions. From them follow the visits of every exact rule, with one score or another: the head
`agree`, the largest probability, entropy, and the acceptance estimator of vLLM, which fits itself
while it serves (`vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py` of vLLM 0.32): one slope
for the log-odds of the largest probability, an intercept for each place of a round, a damped Newton
step after 100 rounds, from drafts that were accepted and the first that was not. Thresholds are
chosen on one half of the questions and shown on the other.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.report import machine, markdown
from citer.config.params import load_params
from citer.data.problems import read_problems
from citer.decoding.answer import Visit
from citer.decoding.policy import StepView, scorer_for
from citer.evaluation.cost import Batch, Prices, Trace
from citer.models.pair import Pair, Text, predict
from citer.pairs.exact import Forced
from citer.pairs.profile import COLUMNS
from citer.rule import LLM, Rule
from citer.serving.deployment import deploy, served_pair
from citer.stages import paths
from citer.storage.tables import write_json

RULE = Rule.parse("risk 0.5 audit 1 cap 16")  # its threshold varies
RISKS = [n / 40 for n in range(1, 40)]
SCORES = {"agree": "agree", "largest probability": "probability", "entropy": "entropy"}
ESTIMATOR = "vLLM's estimator"
QUESTIONS = 400
Numbers = NDArray[np.float64]


@dataclass
class Estimator:
    """Estimates whether the LLM accepts the draft at place k, by the log-odds of its probability.

    The constants are vLLM's, and so are the names of the sums: see `_accumulate_kernel`.
    """

    places: int
    slope: float = 0.5
    rounds: int = 0
    intercept_K: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self.intercept_K = np.full(self.places, -0.2)
        self._clear()

    def _clear(self) -> None:
        self.a, self.g0 = 0.0, 0.0
        self.b_K, self.c_K, self.g1_K, self.n_K = np.zeros((4, self.places))

    def __call__(self, place: int, odds: float) -> float:
        return float(expit(self.slope * odds + self.intercept_K[place]))

    def learn(self, odds: Sequence[float], accepted: int) -> None:
        """Learn from a round: `accepted` drafts, and the next one, if it was made."""
        for place, feature in enumerate(odds[: accepted + 1]):
            p = self(place, feature)
            weight, residual = p * (1 - p), float(place < accepted) - p
            self.a += weight * feature**2
            self.g0 += residual * feature
            self.b_K[place] += weight * feature
            self.c_K[place] += weight
            self.g1_K[place] += residual
            self.n_K[place] += 1
        self.rounds += 1
        if self.rounds % 100 == 0:
            self._fit()

    def _fit(self) -> None:
        c_K = self.c_K + 1e-3
        rest = self.a + 1e-3 - (self.b_K**2 / c_K).sum()
        step = (self.g0 - (self.b_K * self.g1_K / c_K).sum()) / rest
        step *= self.n_K.sum() / (self.n_K.sum() + 50)
        step = step if self.slope + step >= 0 else 0.0
        self.slope += step
        self.intercept_K += (self.g1_K - self.b_K * step) / c_K * self.n_K / (self.n_K + 50)
        self._clear()


def trace(answer: Forced, visits: Sequence[Visit]) -> Trace:
    return Trace.of(answer.prompt_len, len(answer.agrees), visits)


@torch.inference_mode()
def read(
    pair: Pair, texts: Sequence[Text], scorers: Mapping[str, Callable[..., torch.Tensor]]
) -> list[Forced]:
    """Let the SLM read texts."""
    agrees, scores = list[bool](), {name: list[float]() for name in scorers}
    for predicted in predict(pair.slm, pair.vocabulary, texts):
        none_C = torch.zeros_like(predicted.given_C)
        view = StepView(predicted.hidden_CH, predicted.logits_CV, none_C, none_C)
        agrees += (predicted.logits_CV.argmax(-1) == predicted.given_C).tolist()
        for name, scorer in scorers.items():
            scores[name] += scorer(view).tolist()
    found, start = list[Forced](), 0
    for text in texts:
        own = slice(start, start + len(text.ids) - text.first)
        found.append(Forced(text.first, agrees[own], {k: v[own] for k, v in scores.items()}, []))
        start = own.stop
    return found


def visits(answer: Forced, risk: float, name: str, estimator: Estimator) -> list[Visit]:
    """Return the visits of an exact rule with this threshold and score."""
    made, written, tokens = list[Visit](), 0, len(answer.agrees)
    scores = answer.scores["largest probability" if name == ESTIMATOR else name]
    while written < tokens:
        product, odds = 1.0, list[float]()
        for score in scores[written:]:
            odds.append(float(np.clip(np.log(score / (1 - score)), -40, 40)))
            product *= estimator(len(odds) - 1, odds[-1]) if name == ESTIMATOR else score
            if product < risk or len(odds) == RULE.cap:
                break
        agreed = answer.agrees[written : written + len(odds)]
        kept = agreed.index(False) if False in agreed else len(odds)
        estimator.learn(odds, kept)
        # An EOS at the end is judged unread.
        made.append(Visit(len(odds), min(written + len(odds), tokens - 1), written + kept))
        written += kept + 1
    return made


def cost(prices: Prices, traces: Sequence[Trace], alone: Sequence[Trace], batch: Batch) -> float:
    return prices.moved(*batch.work(traces)) / prices.moved(*batch.work(alone))


def compared(prices: Prices, answers: Sequence[Forced]) -> list[dict[str, object]]:
    """Return a row a score, with its visits and costs at the best threshold of each batch."""
    alone = [trace(each, [Visit(0, n, n) for n in range(len(each.agrees))]) for each in answers]
    middle, rows = len(answers) // 2, list[dict[str, object]]()
    for name in (*SCORES, ESTIMATOR):
        row: dict[str, object] = {"score": name}
        own = {}
        for risk in RISKS:
            estimator = Estimator(RULE.cap)
            own[risk] = [trace(each, visits(each, risk, name, estimator)) for each in answers]
        for batch in COLUMNS:
            chosen = min(
                RISKS, key=lambda at: cost(prices, own[at][:middle], alone[:middle], batch)
            )
            shown = own[chosen][middle:]
            row[f"batch {batch.slots}"] = cost(prices, shown, alone[middle:], batch)
            row[f"threshold {batch.slots}"] = chosen
        rows.append(row)
    return rows


def main(project: Annotated[Path, typer.Argument(help="Where `citer run` has ended.")]) -> None:
    """Compare the scores, and write docs/estimator.json."""
    here = Path(__file__).parents[1]
    with chdir(project):
        params, folder = load_params(), paths.router(max(map(int, load_params().iterations)))
        folders = served_pair(folder, params.pair)
        made = deploy(folder, folders, params.pair, LLM, params.answer)
        problems = read_problems(paths.referenced("test"))[:QUESTIONS]
        replies = [each for each in made.replies(problems) if not each.answer.truncated]
        texts = []
        for reply in replies:
            prompt_ids = made.pair.prompts.prompt_ids(reply.problem)
            texts.append(Text([*prompt_ids, *reply.answer.token_ids], len(prompt_ids)))
        rules = {name: replace(RULE, by=by) for name, by in SCORES.items()}
        scorers = {name: scorer_for(made.router, rule) for name, rule in rules.items()}
        rows = compared(Prices.of(made.pair), read(made.pair, texts, scorers))
    write_json(here / "estimator.json", {"machine": machine(), "scores": rows})
    print(markdown(rows))


if __name__ == "__main__":
    typer.run(main)
