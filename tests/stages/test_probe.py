"""The stage `probe`, from files to files."""

import json
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from math import log
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from citer.cli.main import call
from citer.config.params import PairParams, load_params
from citer.data.problems import read_problems, write_problems
from citer.errors import InputError
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.pairs.probe import QUESTIONS
from citer.pairs.profile import ALONE, BOUND, Agreement
from citer.rule import Rule
from citer.stages import paths, probe
from citer.stages.budget import PACE, Kept
from citer.storage.schema import SPLITS
from citer.storage.tables import read_as
from citer.vllm.loading import Served
from tests.stages.conftest import ROOT
from tests.stages.sections import with_section
from tests.tiny import MATH, MC, make_tiny_pair


def write_splits(questions) -> None:
    for split in SPLITS:
        rows = [replace(p, problem_id=f"{split}-{n}", split=split) for n, p in enumerate(questions)]
        write_problems(paths.problems(split), rows, {})


@pytest.fixture
def nonsense(tmp_path, monkeypatch) -> None:
    """Enter a project with 25 questions of each task and a random pair, which is never right."""
    monkeypatch.chdir(tmp_path)
    make_tiny_pair(Path("data/pair"))
    write_splits([replace(p, question=f"{p.question} {n}") for n in range(25) for p in (MATH, MC)])
    yaml = YAML()
    settings = yaml.load(ROOT / "citer/config/params.yaml")
    settings["pair"]["device"] = "cpu"
    settings["decode"]["max_new_tokens"] = 20
    yaml.dump(settings, Path("params.yaml"))


def test_an_llm_that_writes_nonsense_stops_with_a_hint_and_its_answers(nonsense, capfd):
    paths.PASSED.parent.mkdir()
    paths.PASSED.write_text("of an earlier pair")
    assert call(["probe"]) == 2
    shown = capfd.readouterr()
    *_, last = shown.err.strip().splitlines()
    assert last.startswith("citer: probe: LLM right on 0.0% of 20 math questions of validation")
    assert "; LLM right on " in last
    assert re.search(r"math: \d+ of 20 answers are cut off before EOS: .*max_new_tokens$", last)
    assert re.search(r"^probe: mc: \d+ of 20 answers are cut off", shown.out, re.MULTILINE)
    assert shown.out.count("    read: nothing\n") == 4
    assert "a rough forecast: references under 1 min, score_llm under 1 min, finetune" in shown.out
    assert re.search(
        r"^together about .*, between \d+ and \d+; what would save most:$", shown.out, re.M
    )
    rows = pq.read_table(paths.PROBED).to_pylist()
    assert [row["model"] for row in rows] == ["slm"] * 2 * QUESTIONS + ["llm"] * 2 * QUESTIONS
    assert {row["problem_id"].partition("-")[0] for row in rows} == {"validation"}
    assert not paths.PASSED.exists()


def test_there_is_no_floor_if_answers_are_compared_with_those_of_the_llm(nonsense, capsys):
    probe.run(with_section(load_params(), "evaluate", against="llm"))
    assert paths.PASSED.exists()
    assert "evaluate.llm_floor" not in capsys.readouterr().out


def test_what_later_stages_depend_on_is_the_same_after_other_answers(nonsense):
    params = with_section(load_params(), "evaluate", llm_floor=0.0)
    written = []
    for seed in (1, 1, 2):
        probe.run(params.model_copy(update={"seed": seed}))
        written.append((paths.PROBED.read_bytes(), paths.PASSED.read_bytes()))
    assert written[0] == written[1]
    assert written[0][0] != written[2][0]
    assert written[0][1] == written[2][1]


def test_a_pair_that_knows_the_questions_passes(project, capsys):
    write_splits(read_problems(paths.referenced("preference")))
    floored = with_section(project, "evaluate", llm_floor=0.5)
    probe.run(with_section(floored, "decode", max_new_tokens=40))
    assert paths.PASSED.exists()
    shown = capsys.readouterr().out
    line = shlex.split(next(each for each in shown.splitlines() if "or in vLLM: " in each))
    options = dict(zip(line[-4::2], map(json.loads, line[-3::2]), strict=True))
    served = Served(options["--additional-config"]["citer"]["rule"], (), 16, scored=True)
    assert served.asked(None).exact
    measured = read_as(paths.AGREEMENT, Agreement)
    where = f"at {measured.agreement:.1%} of {measured.tokens:,} positions"
    assert where in shown
    assert {ALONE, BOUND, "every 8 audit 1", "risk 0.5 audit 1 by entropy"} <= {*measured.rules}
    assert options["--speculative-config"]["model"] == project.pair.slm
    assert "4 of 6" in shown
    assert "probe:" not in shown  # no warning


def test_the_forecast_keeps_how_much_longer_several_rules_take_than_one(nonsense, monkeypatch):
    def seconds(engine, batches, *policies):
        return 3.0 * len({policy.rule for policy in policies})

    monkeypatch.setattr("citer.stages.probe.seconds", seconds)
    probe.run(with_section(load_params(), "evaluate", llm_floor=0.0))
    work = read_as(PACE, Kept).work
    assert work.routed == 1
    assert work.growth == pytest.approx(7 / log(8))


def test_questions_without_answers_are_not_graded(project, capsys):
    taught = read_problems(paths.referenced("preference"))
    write_splits([replace(p, answer=None) if p.choices else p for p in taught])
    floored = with_section(project, "evaluate", llm_floor=0.5)
    probe.run(with_section(floored, "decode", max_new_tokens=40))
    assert paths.PASSED.exists()
    rows = pq.read_table(paths.PROBED).to_pylist()
    assert {row["correct"] for row in rows if row["task"] == "mc"} == {None}
    assert {row["correct"] for row in rows if row["task"] == "math"} == {True, False}
    shown = capsys.readouterr().out
    [line] = [line for line in shown.splitlines() if line.startswith("│ mc ")]
    assert [cell.strip() for cell in line.split("│")[1:5]] == ["mc", "LLM", "-", "0 of 6"]
    [after] = re.findall(r"^mc, not graded:\n(?:.+\n)+", shown, re.MULTILINE)[:1]
    assert "expected:" not in after


def test_an_llms_answer_must_have_room_in_a_training_row(nonsense, monkeypatch):
    for each in SPLITS:
        rows = read_problems(paths.problems(each))
        bare = [p if each == "preference" else replace(p, reference=None) for p in rows]
        write_problems(paths.problems(each), bare, {})
    monkeypatch.setattr(probe, "load_pair", None)
    complaint = r"^sft problem sft-\d+ of tiny: 5\d+ tokens with its prompt and an answer of 500 "
    with pytest.raises(InputError, match=complaint):
        probe.run(with_section(load_params(), "decode", max_new_tokens=500))


@pytest.mark.parametrize(
    ("split", "change", "complaint"),
    [
        ("sft", {"reference": "7 " * 900}, "sft problem sft-0 of tiny: "),
        ("preference", {"question": "7 " * 990}, "problem preference-0: "),
        ("test", {"question": "7 " * 1100}, "data/problems/test.parquet: problem test-0: "),
    ],
)
def test_a_row_that_a_later_stage_would_refuse_is_named_before_a_model_is_loaded(
    nonsense, monkeypatch, split, change, complaint
):
    row = replace(MATH, problem_id=f"{split}-0", split=split, source="tiny", **change)
    write_problems(paths.problems(split), [row], {})
    monkeypatch.setattr(probe, "load_pair", None)
    with pytest.raises(InputError) as caught:
        probe.run(load_params())
    assert str(caught.value).startswith(complaint)
    assert "expected at most" in str(caught.value)
    assert not paths.PROBED.exists()


def test_vllm_has_no_command_for_models_of_two_vocabulary_sizes(tmp_path):
    slm, llm = make_tiny_pair(tmp_path)
    section = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float32")
    pair = load_pair(PairFolder(slm, llm), section)
    pair.llm.network.resize_token_embeddings(pair.slm.vocab_size + 24, mean_resizing=False)
    sizes = f"{pair.slm.vocab_size:,} and {pair.slm.vocab_size + 24:,}"
    line = probe.vllm_line(pair, Rule.parse("risk 0.7 audit 1"))
    assert line == f"no command, since vocab_size is {sizes}, expected equal ones"


def test_the_command_for_vllm_is_quoted_for_a_shell(tmp_path):
    slm, llm = make_tiny_pair(tmp_path / "the team's models")
    section = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float32")
    pair = load_pair(PairFolder(slm, llm), section)
    words = shlex.split(probe.vllm_line(pair, Rule.parse("risk 0.7 audit 1")))
    assert words[:4] == ["vllm", "serve", str(llm), "--speculative-config"]
    assert json.loads(words[4])["model"] == str(slm)
    assert json.loads(words[6]) == {"citer": {"rule": "risk 0.7 audit 1"}}


def test_a_pair_whose_rules_all_cost_more_than_the_llm_is_a_warning(nonsense, capsys):
    """Neither model ever agrees with the other."""
    with suppress(InputError):
        probe.run(with_section(load_params(), "evaluate", llm_floor=0.0))
    found = read_as(paths.AGREEMENT, Agreement)
    assert found.agreement < 0.2
    assert "probe: no such rule moves fewer bytes than the LLM alone" in capsys.readouterr().out
