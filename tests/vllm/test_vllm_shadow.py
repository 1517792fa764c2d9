"""Chats are answered again by the LLM alone, and the rule steps back; without vLLM."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from citer.config.params import ShadowParams
from citer.rule import LLM, Rule
from citer.serving.deployment import Reply
from citer.serving.evidence import Evidence
from citer.serving.promise import Promise
from citer.serving.shadow import Keeper
from citer.vllm.chats import Again, Asked, ChatLog, whole

LOOSE, STRICT, EXACT = "every 8", "risk 0.9 audit 0.1", "risk 0.9 audit 1.0"
CHAT = [{"role": "user", "content": "How many?"}]
GREEDY = SimpleNamespace(temperature=0)
BOX = r"\boxed{%s}"


class Request(BaseModel, extra="allow"):
    """The fields of vLLM's request that are set here."""

    messages: list[dict[str, str]] = CHAT
    max_tokens: int | None = None
    stop: list[str] = []
    n: int = 1
    stream: bool = False
    temperature: float | None = None


@pytest.fixture
def log(tmp_path: Path) -> ChatLog:
    promise = Promise(path=[LOOSE, STRICT, EXACT], graded=0.05, same=0.05, delta=0.05)
    settings = ShadowParams(shadow=1.0, false_alarms=20)
    evidence = Evidence(tmp_path / "evidence.db")
    return ChatLog(("math",), keeper=Keeper("r/1", promise, evidence, settings))


def kept(log: ChatLog) -> Keeper:
    assert log.keeper
    return log.keeper


def rows(log: ChatLog) -> list[tuple[str, bool, float]]:
    return [(each.rule, each.lost, each.limit) for each in kept(log).evidence.after("r/1")]


def asked_of(log: ChatLog) -> Asked:
    """Return what is asked of citer by a chat that names no rule."""
    asked = Asked(rule=str(kept(log).rule))
    asked.chat = log.chat(Request(), GREEDY, named=False)
    return asked


async def outputs(text: str, reason: str | None = "stop") -> AsyncIterator[Any]:
    """Yield vLLM's outputs of a stream: the text in two parts, its end, and one without news."""
    half = len(text) // 2
    for part, ended in ((text[:half], None), (text[half:], reason)):
        choice = SimpleNamespace(text=part, token_ids=[1], finish_reason=ended)
        yield SimpleNamespace(outputs=[choice])
    yield SimpleNamespace(outputs=[])


def serve(log: ChatLog, reply: AsyncIterator[Any], again: Again) -> Asked:
    """Serve a chat that names no rule, to the end of its shadow answers. Return what it asked."""

    async def take() -> list[Any]:
        return [[], []]  # of two ranks

    async def read() -> None:
        async for _ in log.watched(reply, asked, "chatcmpl-1", take, again):
            pass
        await asyncio.gather(*log._storing)

    asked = asked_of(log)
    asyncio.run(read())
    return asked


def answering(**texts: str) -> Again:
    """Answer again: by the LLM alone with `llm`, by any other rule with `loose`."""

    async def again(rule: Rule) -> str | None:
        return await whole(outputs(texts["llm" if rule == LLM else "loose"]))

    return again


def lose(log: ChatLog, steps: int) -> None:
    """Serve as many lost answers as take the rule so many steps back."""
    for _ in range(3 * steps):
        serve(log, outputs(BOX % 5), answering(llm=BOX % 4, loose=BOX % 5))
    assert kept(log).standing.place == steps


def test_what_the_texts_show_is_kept(log: ChatLog) -> None:
    serve(log, outputs("So " + BOX % 4), answering(llm="It is " + BOX % 4))
    serve(log, outputs(BOX % 5), answering(llm=BOX % 4))
    assert rows(log) == [(LOOSE, False, 0.05), (LOOSE, True, 0.05)]
    assert asyncio.run(log.refreshed()) == {
        "step": 0,
        "e_detector": pytest.approx(kept(log).standing.detector.value),
        "shadowed": 2,
        "lost": 1,
        "dropped": 0,
        "lapsed": False,
    }


def test_a_bad_rule_is_stepped_back_from_and_watched_further(log: ChatLog) -> None:
    lose(log, 1)
    before = len(rows(log))
    assert before == 3
    asked = serve(log, outputs(BOX % 4), answering(llm=BOX % 4, loose=BOX % 5))
    assert asked["rule"] == STRICT
    assert asked.chat
    assert asked.chat.shadow == (LLM, Rule.parse(LOOSE))
    assert rows(log)[before:] == [(STRICT, False, 0.05), (LOOSE, True, 0.05)]
    # Nobody has told of the step yet: another server can, which knows Prefect.
    assert kept(log).evidence.claim(kept(log).standing.steps[0].number)


def test_an_answer_of_an_exact_rule_is_the_llms_own(log: ChatLog) -> None:
    lose(log, 2)
    before = len(rows(log))
    asked = serve(log, outputs(BOX % 4), answering(loose=BOX % 4))
    assert asked.chat
    assert (asked["rule"], asked.chat.shadow) == (EXACT, (Rule.parse(STRICT),))
    assert rows(log)[before:] == [(STRICT, False, 0.05)]


def test_servers_that_share_the_evidence_step_back_together(log: ChatLog, tmp_path: Path) -> None:
    mine = kept(log)
    evidence = Evidence(tmp_path / "evidence.db")
    other = ChatLog(("math",), keeper=Keeper("r/1", mine.promise, evidence, mine.settings))
    lose(log, 1)
    assert str(kept(other).rule) == LOOSE
    assert asyncio.run(other.refreshed())["step"] == 1
    assert str(kept(other).rule) == STRICT


async def down(_: Any) -> str:
    raise RuntimeError("EngineCore died")


@pytest.mark.parametrize(
    ("reply", "again"),
    [
        (lambda: outputs(BOX % 4, None), answering(llm=BOX % 4)),  # the client left
        (lambda: outputs(BOX % 4), down),
        (lambda: outputs(BOX % 4), lambda _: whole(outputs(BOX % 4, "abort"))),
    ],
    ids=["gone", "dead", "aborted"],
)
def test_without_both_answers_there_is_no_evidence(log: ChatLog, reply: Any, again: Any) -> None:
    serve(log, reply(), again)
    assert rows(log) == []
    assert log.dropped == 1


def test_a_request_without_any_output_says_so() -> None:
    async def nothing() -> AsyncIterator[Any]:
        for none in ():
            yield none

    with pytest.raises(ValueError, match="vLLM ended it: None"):
        asyncio.run(whole(nothing()))


def test_an_engine_that_dies_in_a_reply_leaves_no_evidence(log: ChatLog) -> None:
    async def dying() -> AsyncIterator[Any]:
        yield SimpleNamespace(outputs=[])
        raise RuntimeError("EngineCore died")

    with pytest.raises(RuntimeError):
        serve(log, dying(), answering(llm=BOX % 4))
    assert (rows(log), log.dropped) == ([], 1)


def test_one_request_is_answered_again_at_a_time_and_few_wait(log: ChatLog) -> None:
    log._room = asyncio.Semaphore(3)
    running, most = 0, 0

    async def again(_: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return BOX % 4

    async def all_at_once() -> None:
        for _ in range(5):
            async for _ in log.watched(outputs(BOX % 4), asked_of(log), "id", down, again):  # type: ignore[arg-type]
                pass
        await asyncio.gather(*log._storing)

    asyncio.run(all_at_once())
    assert (most, len(rows(log)), log.dropped) == (1, 3, 2)


FREE = Request(stream=True, temperature=0, metadata={"of": "no declared field"})
WARM = SimpleNamespace(temperature=0.7)


@pytest.mark.parametrize(
    ("request_", "params", "named", "shadow"),
    [
        pytest.param(FREE, GREEDY, False, (LLM,), id="a greedy chat"),
        pytest.param(FREE, GREEDY, True, (), id="its own rule"),
        pytest.param(FREE, WARM, False, (), id="sampled"),
        pytest.param(Request(max_tokens=9), GREEDY, False, (), id="limit"),
        pytest.param(Request(stop=["\n"]), GREEDY, False, (), id="stop"),
        pytest.param(Request(n=2), GREEDY, False, (), id="choices"),
    ],
)
def test_only_greedy_chats_as_those_of_the_certificate_are_shadowed(
    log: ChatLog, request_: Request, params: Any, named: bool, shadow: tuple[Rule, ...]
) -> None:
    log.observer = print  # keeps all chats
    chat = log.chat(request_, params, named=named)
    assert chat
    assert (chat.shadow, log.dropped) == (shadow, len(shadow))
    log.observer = None
    assert (log.chat(request_, params, named=named) is None) == (not shadow)


def test_a_shadowed_answer_is_logged_too(log: ChatLog) -> None:
    seen: list[Reply] = []
    log.observer = seen.append
    serve(log, outputs(BOX % 4), answering(llm="It is " + BOX % 4))
    serve(log, outputs(BOX % 4), down)
    assert [reply.completion for reply in seen] == [BOX % 4] * 2
    assert [reply.reference for reply in seen] == ["It is " + BOX % 4, None]
    assert len(rows(log)) == 1


def test_an_answer_that_is_cut_off_is_wrong(log: ChatLog) -> None:
    serve(log, outputs(BOX % 4, "length"), answering(llm=BOX % 4))
    assert rows(log) == [(LOOSE, True, 0.05)]

    async def cut(_: Any) -> str | None:
        return await whole(outputs(BOX % 4, "length"))

    serve(log, outputs(BOX % 4), cut)  # the promise does not count it
    assert (len(rows(log)), log.dropped) == (1, 0)
