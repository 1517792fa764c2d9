"""Draw one answer: the SLM's entropy, the router's doubt, and the labels of its tokens.

Prints the SLM's mean entropy at the embedded tasks' openings and citations.

python -m benchmarks.anatomy        # after `citer run`; draws benchmarks/results/anatomy.png
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from matplotlib.figure import Figure

from citer.data.tokens import read_features
from citer.demo.words import LANDS, OPENINGS, TWINS
from citer.models.bundle import read_bundle
from citer.models.folder import ModelFolder
from citer.stages import paths
from citer.storage.schema import PREFERENCE
from citer.storage.tables import read_table, replacing

ITERATION = 2
PICTURE = Path("benchmarks/results/anatomy.png")
COLOURS = {  # the palette of Okabe and Ito
    "the SLM writes the reference's token": "#BBBBBB",
    "it writes another, which may stand": "#56B4E9",
    "it writes another, which leads astray": "#D55E00",
}


def most_fatal(labels: pa.Table) -> pa.Table:
    """Return the labels of the answer with the most fatal contested tokens.

    Answers in which the LLM alone is right about a token are left out.
    """
    alone = labels.filter(pc.equal(labels["case"], "llm_right"))["problem_id"].unique()
    labels = labels.filter(pc.invert(pc.is_in(labels["problem_id"], alone)))
    answers = labels.group_by("problem_id").aggregate([("label", "sum"), ("label", "count")])
    fatal = pc.subtract(answers["label_count"], answers["label_sum"])
    ranked = answers.append_column("fatal", fatal).sort_by(
        [("fatal", "descending"), ("label_count", "ascending"), ("problem_id", "ascending")]
    )
    return labels.filter(pc.equal(labels["problem_id"], ranked["problem_id"][0]))


def draw(words: list[str], bars: dict[str, np.ndarray], kinds: list[str]) -> Figure:
    """Draw a panel for each entry of `bars`, with a bar for each token of the answer."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(len(bars), 1, sharex=True)
    colours = [COLOURS[kind] for kind in kinds]
    for axes, (title, height_N) in zip(panels, bars.items(), strict=True):
        axes.bar(range(len(words)), height_N, color=colours)
        axes.set_ylabel(title)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xticks(range(len(words)), words, rotation=90)
    swatches = [
        panels[0].bar([0], [0], color=colour, label=kind) for kind, colour in COLOURS.items()
    ]
    figure.legend(handles=swatches, loc="outside upper center", ncols=len(COLOURS), frameon=False)
    return figure


def entropies(tokens: pa.Table, decode: Callable[[list[int]], object]) -> dict[str, float]:
    """Return the SLM's mean entropy, in nats, before words of each kind."""
    words = {
        token: str(decode([token])).strip() for token in tokens["gt_token"].unique().to_pylist()
    }
    means = {}
    for name, known in {"openings": OPENINGS, "twins": TWINS, "lands": LANDS}.items():
        chosen = pa.array([token for token, word in words.items() if word in known], pa.int32())
        rows = tokens.filter(pc.is_in(tokens["gt_token"], chosen))
        means[name] = pc.mean(rows["slm_entropy"]).as_py()
    return means


def kind(row: dict[str, Any]) -> str:
    right, stands, astray = COLOURS
    return right if row["case"] == "slm_right" else stands if row["label"] else astray


def main() -> None:
    labels = most_fatal(read_table(paths.preferences(ITERATION), PREFERENCE))
    tokens = pq.read_table(paths.SLM_TOKENS, columns=["problem_id", "gt_token", "slm_entropy"])
    answer = tokens.filter(pc.equal(tokens["problem_id"], labels["problem_id"][0]))
    tokenizer = ModelFolder(paths.SLM).tokenizer
    for name, nats in entropies(tokens, tokenizer.decode).items():
        print(f"{name}: {nats:.2f} nats")
    router, _ = read_bundle(paths.router(ITERATION))
    feature_NF = torch.from_numpy(read_features(paths.SLM_TOKENS, labels)).float()
    bars = {
        "SLM's entropy (nats)": answer["slm_entropy"].to_numpy(),
        "router's doubt": 1 - router.heads["stand"].score(feature_NF).numpy(),
    }
    words = [str(tokenizer.decode([token])).strip() for token in answer["gt_token"].to_pylist()]
    with replacing(PICTURE) as aside:
        figure = draw(words, bars, [kind(row) for row in labels.to_pylist()])
        figure.savefig(aside, format="png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
