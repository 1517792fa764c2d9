"""What each part of the method is worth on many embedded pairs: a YAML file of benchmarks/studies.

    python -m benchmarks.study NAME --work FOLDER

Writes `benchmarks/results/NAME.{json,md,png}` after each pair. A killed study continues.

The pipeline runs for each pair up to the choice of a rule, with no choice on test. There two groups
of tested rules are compared by the cost at which each reaches SHARE of the LLM's right answers. A
group may mix two of its rules, or one with a model alone. Its best mix is picked on test.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from subprocess import CalledProcessError
from typing import Annotated, Any

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
import yaml
from pydantic import ValidationError

from benchmarks.pretrain import make_pair
from benchmarks.report import RESULTS, command, machine, markdown, write_results
from citer.config.params import load_params
from citer.demo import toy
from citer.demo.knowledge import TRUTH, Design, knowledge
from citer.errors import InputError, read_text
from citer.evaluation.methods import MODELS, NUMBERS, SCORERS, STATE, Row
from citer.evaluation.metrics import RESAMPLES, SEED, Frontier, interval, resamples
from citer.report.charts import ROW, chart, in_light, png, svg
from citer.report.worth import Answers, Has
from citer.rule import LLM, Rule
from citer.sections import Count, Section, Seed, Share, complaint
from citer.stages import paths
from citer.storage.tables import read_json, replacing, write_text
from citer.storage.yaml_file import edited

STUDIES = Path(__file__).with_name("studies")
SHARE = 0.99
KEPT = 50  # resamples of each difference in the results


class Subject(Section):
    """A pair: its seeds (of `pretraining` None: the shipped weights), and its questions.

    `unseen` is the share of names that only test asks for.
    """

    seed: Seed
    pretraining: Seed | None = None
    design: Mapping[str, Any] = {}
    unseen: Share = 0.0


class Pairs(Section):
    """The pairs, the rows of each task by split, and settings: of all runs, and of each by name.

    A name begins with its last iteration. There are one iteration, a second one, and one by suffix.
    """

    question: str
    rows: Mapping[str, Count]
    params: Mapping[str, Any]
    runs: Mapping[str, Mapping[str, Any]]
    pairs: Mapping[str, Subject]


ONE, TWO, SUFFIX = "1", "2", "1 by suffix"  # runs


def _of(run: str) -> Has:
    return lambda own, rule: own == run


def _final(fits: Callable[[Rule], bool]) -> Has:
    return lambda own, rule: own not in (ONE, SUFFIX) and fits(rule)


def _scored(value: str, most_audit: float = 1) -> Has:
    return _final(lambda rule: value in SCORERS.get(rule.by, ()) and rule.audit <= most_audit)


ALL = _final(lambda rule: True)
SPECULATIVE = _final(lambda rule: (rule.visit, rule.audit, rule.draft) == ("every", 1, "slm"))
COMPARED: Mapping[str, tuple[Has, Has]] = {
    "preferences above agreement": (_scored("preferences"), _scored("agreement")),
    "preferences above Co-LLM": (_scored("preferences"), _scored("Co-LLM's likelihood")),
    "CITER above Co-LLM": (_scored("preferences", 0), _scored("Co-LLM's likelihood", 0)),
    "rollouts above suffix": (_of(ONE), _of(SUFFIX)),
    "rollouts above contested → SLM": (_of(ONE), _scored("contested → SLM")),
    "hidden state above ten numbers": (_scored(STATE), _scored(NUMBERS)),
    "routing above speculation": (_final(lambda rule: not rule.exact), SPECULATIVE),
    "audits above none": (_final(lambda rule: rule.audit > 0), _final(lambda rule: not rule.audit)),
    "iteration 2 above 1": (_of(TWO), _of(ONE)),
}
REGRET = "deployed above the cheapest that keeps the promise"
NAMES = (*COMPARED, REGRET)
FACTS = ("fatal", "slm", "llm", "cost", "deployed", "lost")


def pairs(study: Pairs, work: Path, target: Path) -> None:
    """Measure what `target` lacks, and write it after each pair. A killed study continues."""
    known = read_json(target)["pairs"] if target.exists() else {}
    found = {name: known[name] for name in study.pairs if name in known}
    for name, subject in study.pairs.items():
        if {*NAMES} <= found.get(name, {}).keys():
            continue
        try:
            found[name] = measured(study, subject, work / name)
        except CalledProcessError as error:
            print(f"{name}: {error}", flush=True)
            continue
        missing = ", ".join(name for name in study.pairs if name not in found) or "none"
        each = [
            {"pair": name}
            | {fact: unit.get(fact) for fact in FACTS}
            | {key: unit.get(key, {}).get("change") for key in NAMES}
            for name, unit in found.items()
        ]
        text = [study.question, f"{len(found)} pairs. Not run: {missing}."]
        text += map(markdown, (pooled([*found.values()]), each))
        with replacing(target.with_suffix(".png")) as aside:
            aside.write_bytes(png(in_light(svg(picture(found), "pairs"))))
        write_results(target, {"machine": machine(), "pairs": found}, "\n\n".join(text))


def measured(study: Pairs, subject: Subject, clone: Path) -> Row:
    """Make a pair with its questions, run its stages, and compare its rules."""
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", str(Path.cwd()), str(clone)], check=True)
    for task in toy.FAMILIES:
        for split, rows in rows_of(study, subject, task).items():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            write_text(clone / f"data/own/{split}-{task}.jsonl", text)
    card, pair = Path("data/pair/card.json"), clone / "data/pair"
    if subject.pretraining is not None and card.read_bytes() == (pair / card.name).read_bytes():
        make_pair(pair, subject.pretraining, design=Design(**subject.design))
    tables = {}
    for run, changes in study.runs.items():
        settings = {**study.params, **changes, "seed": subject.seed}
        run_stages(clone, edited(Path("params.yaml"), settings))
        tables[run] = pq.read_table(clone / paths.answers(int(run[0])) / "outcomes.parquet")
    contested = [("case", "==", "contested")]
    labels = pq.read_table(clone / paths.preferences(2), filters=contested)["label"].to_numpy()
    deployed = Rule.parse(read_json(clone / paths.report(2) / paths.DEPLOYED)["rule"])
    epsilon = load_params(clone / "params.yaml").evaluate.epsilon
    rivals = pq.read_table(clone / paths.RIVALS / "outcomes.parquet")
    return {"fatal": float(1 - labels.mean())} | compared(rivals, tables, deployed, epsilon)


def run_stages(clone: Path, settings: str) -> None:
    """Run the stages of a clone up to the choice of its last router's rule, with these settings."""
    params = clone / "params.yaml"
    write_text(params, settings)
    last = max(load_params(params).iterations, key=int)
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": "."}
    command = [f"{scripts}/dvc", "repro", f"choose@{last}"]
    subprocess.run(command, cwd=clone, env=environment, check=True)


def rows_of(study: Pairs, subject: Subject, task: str) -> dict[str, list[Row]]:
    """Return the rows of each split, all distinct. Only test asks for all names."""
    facts = knowledge(TRUTH, Design(**subject.design))
    names = [*facts.towns.group, *facts.goods.group]
    unseen = Random(f"unseen {subject.seed}").sample(names, round(subject.unseen * len(names)))
    drawn = toy.rows(task, 10**6, subject.seed, "pipeline", facts)
    known = (row for row in drawn if not any(name in str(row) for name in unseen))
    sources = {split: drawn if split == "test" else known for split in study.rows}
    return {split: [*islice(sources[split], count)] for split, count in study.rows.items()}


def compared(rivals: pa.Table, runs: Mapping[str, pa.Table], deployed: Rule, epsilon: float) -> Row:
    """Compare the groups of rules. A change is that of the first one's cost against the other's.

    The deployed rule stands beside the cheapest tested one that loses at most `epsilon` on test.
    """
    place = rivals.column_names.index("method")
    named = (t.set_column(place, "method", pa.array([run] * len(t))) for run, t in runs.items())
    answers = Answers.of(pa.concat_tables([rivals, *named], promote_options="permissive"))
    drawn_RQ = resamples(np.full(len(answers.task_Q), True)).astype(float)
    right_RV, cost_RV = drawn_RQ @ answers.correct_VQ.T, drawn_RQ @ answers.bytes_VQ.T
    llm, final = answers.run_of("llm", LLM), answers.line(ALL)
    cost_RV /= cost_RV[:, [llm]]

    def cost(has: Has) -> np.ndarray:
        line = answers.line(has)
        mixed = Frontier.of(cost_RV[:, line], right_RV[:, line])
        return np.asarray(mixed.cost_for(SHARE * right_RV[:, llm]))

    def change(one_R: np.ndarray, other_R: np.ndarray) -> Row:
        change_R = one_R / other_R - 1
        drawn = change_R[1 : KEPT + 1].round(4).tolist()
        return {"cost": float(one_R[0]), "change": interval(change_R), "drawn": drawn}

    right = zip(answers.runs, answers.correct_VQ.mean(1).tolist(), strict=True)
    unit: Row = {name: share for (name, _), share in right if name in MODELS}
    unit["cost"] = float(cost(ALL)[0])
    unit |= {name: change(*map(cost, groups)) for name, groups in COMPARED.items()}
    missed_VQ = answers.correct_VQ[llm] * (1 - answers.correct_VQ)
    lost_RV = drawn_RQ @ missed_VQ.T / right_RV[:, [llm]]
    cheapest_R = np.where(lost_RV <= epsilon, cost_RV, np.inf)[:, final].min(1)
    own = next(run for run in final if answers.runs[run][1] == deployed)
    unit[REGRET] = change(cost_RV[:, own], cheapest_R)
    return unit | {"deployed": f"{deployed:.4g}", "lost": interval(lost_RV[:, own])}


def pooled(units: Sequence[Row]) -> list[Row]:
    """Return each comparison's mean over pairs, by a bootstrap over pairs and questions."""
    rng, rows = np.random.default_rng(SEED), list[Row]()
    for name in NAMES:
        known = [unit[name] for unit in units if name in unit]
        change_P3, drawn_PK = (np.array([u[key] for u in known]) for key in ("change", "drawn"))
        shape = (RESAMPLES, len(known))
        mean_R = drawn_PK[rng.integers(len(known), size=shape), rng.integers(KEPT, size=shape)]
        mean = interval(np.append(change_P3[:, 0].mean(), mean_R.mean(1)))
        cheaper, dearer = (change_P3[:, 2] < 0).sum(), (change_P3[:, 1] > 0).sum()
        counts = {"pairs": len(known), "cheaper on": cheaper, "dearer on": dearer}
        rows.append({"": name, "mean above": mean, **counts})
    return rows


def picture(found: Mapping[str, Row]) -> alt.FacetChart:
    """Draw each comparison on each pair, with its interval."""
    rows = [
        {"pair": pair, "name": name}
        | dict(zip(("at", "low", "high"), unit[name]["change"], strict=True))
        for pair, unit in found.items()
        for name in NAMES
        if name in unit
    ]
    base = chart(rows).encode(alt.Y("pair:N").sort(None).title(None)).properties(height=ROW)
    x = alt.X("low:Q").axis(format="%").title("cost above the other's")
    ends, zero = base.mark_rule().encode(x, x2="high"), base.mark_tick().encode(x=alt.datum(0))
    drawn = alt.layer(zero, ends, base.mark_circle().encode(x="at:Q"))
    return drawn.facet(alt.Facet("name:N").sort([*NAMES]).title(None), columns=2)


def read_study(name: str) -> Pairs:
    """Read a study's file."""
    path = STUDIES / f"{name}.yaml"
    content = yaml.safe_load(read_text(path))
    try:
        return Pairs.model_validate(content)
    except ValidationError as invalid:
        raise InputError(f"{path}: {complaint(invalid)}") from None


def main(
    name: Annotated[str, typer.Argument(help="Of a file in benchmarks/studies.")],
    work: Annotated[Path, typer.Option(help="Folder for a clone of each pair.")],
) -> None:
    """Run a study of benchmarks/studies and write its results."""
    pairs(read_study(name), work.absolute(), RESULTS / f"{name}.json")


if __name__ == "__main__":
    command(main)
