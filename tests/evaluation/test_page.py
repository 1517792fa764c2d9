"""The report page of a study by hand."""

import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pytest

from citer.evaluation.bounds import BOUNDS, LEARNS
from citer.evaluation.candidates import STYLES
from citer.evaluation.cost import batches
from citer.evaluation.measure import ACCURACY, FIDELITY, Conditions
from citer.evaluation.methods import SCORERS
from citer.report.charts import WIDTH, svg
from citer.report.figures import calibration_error, worth_chart
from citer.report.page import PageStudy, write_page
from citer.report.worth import PART, parts
from citer.rule import Rule
from citer.storage.schema import HOLDOUT
from citer.storage.tables import write_json, write_table
from tests.evaluation.transcripts import ANSWERS, HOSTILE, transcript
from tests.reported import CHOSEN, NOTHING_CERTIFIED, points

LIMIT = 2_000_000  # bytes
BATCHES = batches([8])  # of the points


@pytest.fixture
def study(tmp_path: Path) -> PageStudy:
    """Two iterations with all files."""
    tokens = {k: tmp_path / "transcripts" / k / "tokens.json" for k in ("1", "2")}
    for k in ("1", "2"):
        write_json(tokens[k], asdict(transcript(f"risk 0.{k} audit 0.1")))
    file = tmp_path / "holdout.parquet"
    write_table(file, holdout(), HOLDOUT, {})
    rows = [beside("ten numbers in place of the hidden state", 0.1, 0.01, PART)]
    rows += [beside("entropy", -0.25, 0.05), beside("oracle", 0.5, 0.1, "bound")]
    rows += [beside("random", None, None, "bound")]
    rows += [beside("speculative", -0.5, 0.1) | {"task": "math"}]
    return PageStudy(points(), CHOSEN, Conditions(), BATCHES, rows, tokens, file)


def beside(other: str, change: float | None, width: float | None, kind: str = "rival") -> dict:
    """The deployed rule beside another, with an interval of this width on both sides."""
    ends = (None, None) if width is None else (change - width, change + width)
    names = ("cost_at_equal_accuracy", *(f"cost_at_equal_accuracy_{e}" for e in ("low", "high")))
    numbers = dict(zip(names, (change, *ends), strict=True))
    return {"task": "all", "other": other, "kind": kind} | numbers


def holdout() -> pa.Table:
    """Scores of .75 of which 3 in 4 are good, and of .25 of which half are good."""
    own = {
        "problem_id": ["one"] * 12,
        "position": range(12),
        "case": ["contested"] * 12,
        "label": [1, 1, 1, 0] * 2 + [1, 0] * 2,
        "score": [0.75] * 8 + [0.25] * 4,
    }
    return pa.table(own, HOLDOUT)


class Read(HTMLParser):
    """Collects a page's tags with their attributes, and its visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text, self._open = "", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self._open = tag
        self.tags.append((tag, dict(attributes)))

    @property
    def tips(self) -> list[str]:
        """The texts on hover: of tokens, and of the marks of charts."""
        found = (own.get("data-tip") or own.get("aria-label", "") for _, own in self.tags)
        return [tip.replace("\N{NO-BREAK SPACE}", " ") for tip in found]

    def handle_data(self, data: str) -> None:
        self.text += data if self._open not in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def read(study: PageStudy, tmp_path: Path) -> Read:
    write_page(tmp_path / "report.html", study)
    return Read((tmp_path / "report.html").read_text())


@pytest.fixture
def page(study: PageStudy, tmp_path: Path) -> Read:
    return read(study, tmp_path)


def test_the_page_has_the_numbers_of_the_deployed_rule_and_of_every_point(page):
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "Router 2 reaches 86.0 % accuracy at 40 % of the LLM" in text
    assert "[81.0, 91.0]" in text
    assert "P(routed wrong | LLM right) ≤ 0.05 at" in text
    tips = " ".join(page.tips)
    for rule in ("risk 0.5 audit 0.1", "every 4 audit 1", "score 0.9 by entropy"):
        assert f"· {rule}\n" in tips
    assert "cost 0.350 · LLM wrote 5.0 %" in tips


def test_equal_findings_give_equal_bytes_within_the_limit(study, tmp_path):
    read(study, tmp_path)
    first = (tmp_path / "report.html").read_bytes()
    read(study, tmp_path)
    assert first == (tmp_path / "report.html").read_bytes()
    assert len(first) < LIMIT


def test_the_page_loads_nothing(page, tmp_path):
    assert not [own for _, own in page.tags if "src" in own or "href" in own]
    source = re.sub(r' xmlns(:\w+)?="[^"]*"', "", (tmp_path / "report.html").read_text())
    assert "default-src 'none'" in source
    assert not re.search(r"https?://|@import|url\((?!#)", source)


def test_text_of_questions_and_models_is_never_markup(page):
    assert HOSTILE in page.text
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not [own for _, own in page.tags if "onload" in own]


def test_the_heat_map_has_every_token_with_its_writer_score_and_choices(page):
    shown = [
        (own["class"], own["data-tip"])
        for _, own in page.tags
        if own.get("class", "").startswith("t ") and "data-tip" in own
    ]
    assert len(shown) == 2 * (5 + 2)  # of two routers: tokens and rejected drafts
    score = "written by the LLM · score 0.4567\nSLM: “ 6” · LLM: “ 7”"
    assert ("t d5 llm differs", score) in shown
    gone = [tip for look, tip in shown if look == "t gone"]
    assert (
        gone
        == ["taken back by an audit; the LLM wrote “ 7”", "dropped after the rejected draft"] * 2
    )
    assert ("t none llm", "written by the LLM · no draft\nSLM: “⏎” · LLM: “⏎”") in shown


def test_the_names_of_changed_parts_are_shown_in_full():
    names = {part.name for by in SCORERS for part in parts(Rule("risk", 0.5, 0.25, by))}
    rows = [beside(name, 0.1, 0.01, PART) for name in sorted(names)]
    assert "…" not in svg(worth_chart(rows, ACCURACY), "worth")


def test_router_k_stands_beside_router_k_minus_1(study, tmp_path):
    write_json(study.tokens["1"], asdict(transcript("every 7 audit 1", ANSWERS[1:])))
    text = read(study, tmp_path).text
    assert "router 1: every 7 audit 1" in text
    assert text.count("router 1 ·") == 1  # it answered only the second question
    assert text.count("router 2 ·") == 2


def test_methods_that_are_never_as_good_are_named_also_without_a_chart(page, study, tmp_path):
    section = "What each part is worth"
    assert section in page.text
    none = [beside("random", None, None, "bound")]
    assert "Never as good: random" in read(replace(study, others=none), tmp_path).text
    assert section not in read(replace(study, others=[]), tmp_path).text


def test_a_retraining_without_a_certified_rule_says_that_the_llm_answers(study, tmp_path):
    chosen = dict.fromkeys(CHOSEN, NOTHING_CERTIFIED)
    text = read(replace(study, chosen=chosen), tmp_path).text
    assert "so the LLM answers alone" in text


def test_a_page_of_fidelity_says_fidelity(study, tmp_path):
    text = read(replace(study, conditions=Conditions(FIDELITY)), tmp_path).text
    assert "86.0\N{NO-BREAK SPACE}% fidelity at" in text
    assert "accuracy" not in text.lower()


def test_others_stand_beside_the_deployed_rule_with_their_intervals(page):
    assert "entropy: -25.0 % [-30.0 %, -20.0 %]" in page.tips
    assert "oracle (a bound): +50.0 % [+40.0 %, +60.0 %]" in page.tips
    assert not [tip for tip in page.tips if tip.startswith("speculative: ")]
    assert "ten numbers in place of the hidden state: +10.0 % [+9.0 %, +11.0 %]" in page.tips
    assert "Never as good: random (a bound)." in page.text


@pytest.mark.parametrize("change", [-0.4, 0.0, 0.3, 2.0])
def test_changes_without_intervals_lie_inside_the_picture(change):
    rows = [beside("random", change, None), beside("entropy", None, None)]
    drawn = svg(worth_chart(rows, ACCURACY), "worth")
    [place] = re.findall(r'limit, no limit\]"[^>]*translate\((\S+),', drawn)
    assert 0 <= float(place) <= WIDTH


def test_the_costs_by_batch_stand_beside_the_accuracy(page):
    assert "router 2, 86 %" in page.text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_says_what_each_method_does(page):
    assert "speculative: the LLM checks every few drafts" in page.text
    assert "router 2: CITER: a head" in page.text
    assert "router 1: CITER" not in page.text
    template = files("citer.report").joinpath("page.html").read_text(encoding="utf-8")
    named = re.findall(r'^  "(\w+)": ', template, re.MULTILINE)
    assert set(named) == {*STYLES, *BOUNDS, LEARNS}


def test_the_calibration_error_is_the_mean_gap_between_score_and_share():
    """The bin of .75 is exact; that of .25 is off by .25 and has a third of the tokens."""
    assert calibration_error(holdout()) == pytest.approx(0.25 / 3)
