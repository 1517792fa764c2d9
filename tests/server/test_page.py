"""The page at `/`, as it is sent, and in headless Chromium."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from citer.data.importing import parse_row
from citer.data.problems import Problem, write_problems
from citer.models.pair import Pair
from citer.rule import LLM, Rule
from citer.serving.server.page import FILE, OFFERED, make_page, offered_questions
from tests.flows.servers import until
from tests.server.browser import CONTROL, ENTER, SPACE, TAB, Browser, browsing
from tests.server.running import QUESTIONS, Running, deployed, running
from tests.server.test_written import alone

in_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("chromedriver"), reason="chromedriver is not on PATH"),
]


class Links(HTMLParser):
    """Collects the attributes with which a page loads something, or runs code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loads = ("src", "href", "srcset", "action", "style")
        self.found += [name for name, _ in attrs if name in loads or name.startswith("on")]


def test_the_page_is_one_short_file_that_loads_nothing(server: Running) -> None:
    reply = httpx.get(server.url)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert re.findall(r"[a-z-]+-src [^;]+", policy)[0] == "default-src 'none'"
    assert "unsafe" not in policy
    assert Links(reply.text).found == []
    assert len(FILE.read_text().splitlines()) <= 200
    assert "innerHTML" not in reply.text


def test_questions_are_offered_as_text(kin: Pair) -> None:
    hostile = '</option><script>alert(1)</script> & "more"'
    page = bytes(make_page([hostile]).body).decode()
    assert page.count("<script>") == 1
    assert "&lt;/option&gt;&lt;script&gt;" in page


def test_a_question_of_two_lines_is_asked_as_such() -> None:
    """A browser takes the white space of an option without a value for one space."""
    page = bytes(make_page(['Which  one?\nA "B"']).body).decode()
    assert '<option value="Which  one?\nA &quot;B&quot;">' in page


def test_the_first_questions_that_a_chat_can_ask_are_offered(tmp_path: Path) -> None:
    def row(n: int) -> Problem:
        return parse_row({"problem": f"Question {n}?", "answer": "1"}, "math", "answer")

    file = tmp_path / "validation.parquet"
    assert offered_questions(file) == []
    assert offered_questions(tmp_path) == []
    rows = [replace(row(n), split="validation") for n in range(OFFERED + 5)]
    write_problems(file, rows, {})
    assert offered_questions(file) == [each.question for each in rows[:OFFERED]]


def test_with_keys_everybody_gets_the_page_but_no_question(kin: Pair) -> None:
    with running(deployed(kin), keys=["secret"], questions=QUESTIONS) as server:
        reply = httpx.get(server.url, headers={"Host": "gpu.example.org"})
        assert reply.is_success
        assert QUESTIONS[0] not in reply.text
    with running(deployed(kin), questions=QUESTIONS) as server:
        assert QUESTIONS[0] in httpx.get(server.url).text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


def shown(browser: Browser, answer: str) -> list[list[str]]:
    """Return the parts of an answer: who wrote it (or DEL), and its text."""
    script = f"return [...document.querySelectorAll('#{answer} *')]"
    return browser.run(f"{script}.map(e => [e.className || e.tagName, e.textContent])")


def text_of(parts: list[list[str]]) -> str:
    return "".join(text for kind, text in parts if kind != "DEL")


def status(browser: Browser) -> Any:
    return browser.run("return document.getElementById('status').textContent")


def focus(browser: Browser, name: str) -> None:
    """Go to an element by the key Tab alone."""
    for _ in range(20):
        if browser.run("return document.activeElement.id") == name:
            return
        browser.press(TAB)
    raise AssertionError(name)


class TestInTheBrowser:
    pytestmark = in_browser

    def test_a_question_is_answered_without_a_mouse(
        self, kin: Pair, server: Running, browser: Browser
    ) -> None:
        rule = Rule("every", 5, audit=1.0)
        browser.open(server.url)
        until(lambda: "tiny/1" in browser.run("return served.textContent"), 30)
        focus(browser, "question")
        browser.press(QUESTIONS[0])
        focus(browser, "rule")
        browser.press(str(rule))
        focus(browser, "beside")
        browser.press(SPACE)
        focus(browser, "question")
        browser.press(ENTER, held=CONTROL)
        until(lambda: status(browser).startswith("Done"), 60)
        routed, moved = alone(kin, QUESTIONS[0], str(rule))
        llms, most = alone(kin, QUESTIONS[0], str(LLM))
        parts = shown(browser, "a0")
        assert text_of(parts) == kin.text(routed.token_ids) == text_of(shown(browser, "a1"))
        assert sum(kind == "DEL" for kind, _ in parts) > 0
        assert {kind for kind, _ in shown(browser, "a1")} == {"llm"}
        cells = browser.run(
            "return [...costs.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent))"
        )
        rows = {name: values for name, *values in cells}
        assert rows["visits of the LLM"][:2] == [str(len(routed.visits)), str(len(llms.visits))]
        assert rows["bytes"][2] == f"{moved / most:.2f}"
        assert len(rows["seconds"]) == 3
        assert browser.complaints() == []

    def test_an_error_of_the_api_is_shown(self, server: Running, browser: Browser) -> None:
        browser.open(server.url)
        browser.run("rule.value = 'risc 1'; question.value = '?'; $('ask').click()")
        until(lambda: status(browser).startswith("citer.rule: 'risc 1': expected"), 30)

    def test_an_answer_can_be_stopped(self, server: Running, browser: Browser) -> None:
        browser.open(server.url)
        server.engine.gate.clear()
        browser.run(f"question.value = '{QUESTIONS[0]}'; $('ask').click()")
        until(lambda: server.service.worker.clients == 1, 30)
        browser.run("$('stop').click()")
        server.engine.gate.set()
        until(lambda: status(browser) == "Stopped.", 30)
        until(lambda: server.service.worker.clients == 0, 30)

    def test_a_key_is_asked_for_and_kept_nowhere(self, kin: Pair, browser: Browser) -> None:
        with running(deployed(kin), keys=["secret"]) as server:
            browser.open(server.url)
            until(lambda: "expected a valid key" in status(browser), 30)
            assert browser.run("return document.activeElement.id") == "key"
            browser.press("secret")
            focus(browser, "question")
            browser.press(QUESTIONS[1])
            focus(browser, "ask")
            browser.press(ENTER)
            until(lambda: status(browser).startswith("Done"), 60)
            kept = "return [localStorage.length, sessionStorage.length, document.cookie]"
            assert browser.run(kept) == [0, 0, ""]
            browser.open(server.url)
            assert browser.run("return key.value") == ""

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_each_text_has_contrast_in_light_and_dark(
        self, server: Running, browser: Browser, scheme: str
    ) -> None:
        """At least 4.5 to 1 (WCAG 2.2, 1.4.3)."""
        browser.prefer(scheme)
        browser.open(server.url)
        style = "getComputedStyle(document.documentElement).getPropertyValue('--{}')"
        names = ("bg", "card", "fg", "muted", "slm", "llm", "lookup", "bad")
        found = [browser.run(f"return {style.format(name)}") for name in names]
        back, card, *texts = map(luminance, found)
        assert (back < 0.1) == (scheme == "dark")
        for text in texts:
            for behind in (back, card):
                low, high = sorted((text, behind))
                assert (high + 0.05) / (low + 0.05) >= 4.5
        browser.prefer("")


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rgb` or `#rrggbb`, as WCAG 2.2 defines it."""
    digits = colour.strip().removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
