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
from citer.vllm import shadow
from citer.vllm.log import ChatLog
from citer.vllm.shadow import Again, Shadows, whole

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
def shadows(tmp_path: Path) -> Shadows:
    promise = Promise(path=[LOOSE, STRICT, EXACT], graded=0.05, same=0.05, delta=0.05)
    settings = ShadowParams(shadow=1.0, false_alarms=20)
    evidence = Evidence(tmp_path / "evidence.db")
    return Shadows(Keeper("r/1", promise, evidence, settings))


def rows(shadows: Shadows) -> list[tuple[str, bool, float]]:
    return [(each.rule, each.lost, each.limit) for each in shadows.keeper.evidence.after("r/1")]


async def outputs(text: str, reason: str | None = "stop") -> AsyncIterator[Any]:
    """Yield vLLM's outputs of a stream: the text in two parts, then its end."""
    half = len(text) // 2
    for part, ended in ((text[:half], None), (text[half:], reason)):
        choice = SimpleNamespace(text=part, token_ids=[1], finish_reason=ended)
        yield SimpleNamespace(outputs=[choice])


def serve(
    shadows: Shadows,
    reply: AsyncIterator[Any],
    again: Again,
    observer: Any = None,
) -> dict[str, Any]:
    """Serve a chat that names no rule, to the end of its shadow answers. Return what it asked."""

    async def take() -> list[Any]:
        return [[], []]  # of two ranks

    async def read() -> None:
        log = ChatLog(observer, ("math",), shadows)
        async for _ in log.watched(reply, asked, take, again):
            pass
        await asyncio.gather(*log._storing)

    asked = shadows.asked(Request(), GREEDY, chat=True)
    asked |= {"messages": CHAT, "request": "chatcmpl-1", "user": None}
    asyncio.run(read())
    return asked


def answering(**texts: str) -> Again:
    """Answer again: by the LLM alone with `llm`, by any other rule with `loose`."""

    async def again(rule: str) -> str | None:
        return await whole(outputs(texts["llm" if Rule.parse(rule) == LLM else "loose"]))

    return again


def lose(shadows: Shadows, steps: int) -> None:
    """Serve as many lost answers as take the rule so many steps back."""
    for _ in range(3 * steps):
        serve(shadows, outputs(BOX % 5), answering(llm=BOX % 4, loose=BOX % 5))
    assert shadows.keeper.standing.place == steps


def test_what_the_texts_show_is_kept(shadows: Shadows) -> None:
    serve(shadows, outputs("So " + BOX % 4), answering(llm="It is " + BOX % 4))
    serve(shadows, outputs(BOX % 5), answering(llm=BOX % 4))
    assert rows(shadows) == [(LOOSE, False, 0.05), (LOOSE, True, 0.05)]
    assert asyncio.run(shadows.refreshed()) == {
        "step": 0,
        "e_detector": pytest.approx(shadows.keeper.standing.detector.value),
        "shadowed": 2,
        "lost": 1,
        "dropped": 0,
        "lapsed": False,
    }


def test_a_bad_rule_is_stepped_back_from_and_watched_further(shadows: Shadows) -> None:
    lose(shadows, 1)
    before = len(rows(shadows))
    assert before == 3
    asked = serve(shadows, outputs(BOX % 4), answering(llm=BOX % 4, loose=BOX % 5))
    assert asked["rule"] == STRICT
    assert asked["shadow"] == [str(LLM), LOOSE]
    assert rows(shadows)[before:] == [(STRICT, False, 0.05), (LOOSE, True, 0.05)]
    # Nobody has told of the step yet: another server can, which knows Prefect.
    assert shadows.keeper.evidence.claim(shadows.keeper.standing.steps[0].number)


def test_an_answer_of_an_exact_rule_is_the_llms_own(shadows: Shadows) -> None:
    lose(shadows, 2)
    before = len(rows(shadows))
    asked = serve(shadows, outputs(BOX % 4), answering(loose=BOX % 4))
    assert (asked["rule"], asked["shadow"]) == (EXACT, [STRICT])
    assert rows(shadows)[before:] == [(STRICT, False, 0.05)]


def test_servers_that_share_the_evidence_step_back_together(
    shadows: Shadows, tmp_path: Path
) -> None:
    mine = shadows.keeper
    evidence = Evidence(tmp_path / "evidence.db")
    other = Shadows(Keeper("r/1", mine.promise, evidence, mine.settings))
    lose(shadows, 1)
    assert other.asked(Request(), GREEDY, chat=False)["rule"] == LOOSE
    assert asyncio.run(other.refreshed())["step"] == 1
    assert other.asked(Request(), GREEDY, chat=False) == {"rule": STRICT, "shadow": []}


async def down(_: str) -> str:
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
def test_without_both_answers_there_is_no_evidence(
    shadows: Shadows, reply: Any, again: Any
) -> None:
    serve(shadows, reply(), again)
    assert rows(shadows) == []
    assert shadows.dropped == 1


def test_an_engine_that_dies_in_a_reply_leaves_no_evidence(shadows: Shadows) -> None:
    async def dying() -> AsyncIterator[Any]:
        yield SimpleNamespace(outputs=[])
        raise RuntimeError("EngineCore died")

    with pytest.raises(RuntimeError):
        serve(shadows, dying(), answering(llm=BOX % 4))
    assert (rows(shadows), shadows.dropped) == ([], 1)


def test_one_request_is_answered_again_at_a_time_and_few_wait(
    shadows: Shadows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "WAITING", 3)
    running, most = 0, 0

    async def again(_: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return BOX % 4

    async def all_at_once() -> None:
        log = ChatLog(None, ("math",), shadows)
        for _ in range(5):
            asked = shadows.asked(Request(), GREEDY, chat=True) | {"messages": CHAT}
            async for _ in log.watched(outputs(BOX % 4), asked, down, again):  # type: ignore[arg-type]
                pass
        await asyncio.gather(*log._storing)

    asyncio.run(all_at_once())
    assert (most, len(rows(shadows)), shadows.dropped) == (1, 3, 2)


FREE = Request(stream=True, temperature=0, metadata={"of": "no declared field"})
WARM = SimpleNamespace(temperature=0.7)


@pytest.mark.parametrize(
    ("request_", "params", "chat", "shadow"),
    [
        pytest.param(FREE, GREEDY, True, [str(LLM)], id="a greedy chat"),
        pytest.param(FREE, GREEDY, False, [], id="a text"),
        pytest.param(FREE, WARM, True, [], id="sampled"),
        pytest.param(Request(max_tokens=9), GREEDY, True, [], id="limit"),
        pytest.param(Request(stop=["\n"]), GREEDY, True, [], id="stop"),
        pytest.param(Request(n=2), GREEDY, True, [], id="choices"),
    ],
)
def test_only_greedy_chats_as_those_of_the_certificate_are_shadowed(
    shadows: Shadows, request_: Request, params: Any, chat: bool, shadow: list[str]
) -> None:
    assert shadows.asked(request_, params, chat=chat) == {"rule": LOOSE, "shadow": shadow}


def test_a_shadowed_answer_is_logged_too(shadows: Shadows) -> None:
    seen: list[Reply] = []
    serve(shadows, outputs(BOX % 4), answering(llm="It is " + BOX % 4), seen.append)
    serve(shadows, outputs(BOX % 4), down, seen.append)
    assert [reply.completion for reply in seen] == [BOX % 4] * 2
    assert [reply.reference for reply in seen] == ["It is " + BOX % 4, None]
    assert len(rows(shadows)) == 1


def test_an_answer_that_is_cut_off_is_wrong(shadows: Shadows) -> None:
    serve(shadows, outputs(BOX % 4, "length"), answering(llm=BOX % 4))
    assert rows(shadows) == [(LOOSE, True, 0.05)]

    async def cut(_: str) -> str | None:
        return await whole(outputs(BOX % 4, "length"))

    serve(shadows, outputs(BOX % 4), cut)  # the promise does not count it
    assert (len(rows(shadows)), shadows.dropped) == (1, 0)
