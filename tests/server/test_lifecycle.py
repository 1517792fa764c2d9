"""Load, clients that leave, promotions, the end of the server and the death of the engine."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
import torch

from citer.models.pair import Pair
from citer.rule import Rule
from citer.serving.deployment import Reply
from citer.serving.server.releases import Release
from tests.flows.servers import until
from tests.server.running import QUESTIONS, Running, asked, deployed, head, routing, running


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(8) as made:
        yield made


def ask(server: Running, question: str, **fields: Any) -> Any:
    return server.client().chat.completions.create(**asked(question, **fields))


def held(server: Running, pool: ThreadPoolExecutor, questions: list[str]) -> list[Future]:
    """Ask while the gate is shut. Return when the server has all questions."""
    server.engine.gate.clear()
    begun = [pool.submit(ask, server, question) for question in questions]
    until(lambda: server.service.worker.clients == len(questions), 30)
    return begun


def test_a_full_queue_is_refused_and_what_waits_is_answered(
    kin: Pair, pool: ThreadPoolExecutor
) -> None:
    with running(deployed(kin, slots=2), queue=1) as server:
        begun = held(server, pool, QUESTIONS[:3])
        assert server.metric("citer_waiting_requests") == 1
        assert server.metric("citer_running_requests") == 2
        with pytest.raises(openai.RateLimitError, match="1 requests wait already") as caught:
            ask(server, QUESTIONS[3])
        assert caught.value.response.headers["retry-after"] == "1"
        server.engine.gate.set()
        assert all(each.result(30).choices[0].message.content for each in begun)
        assert ask(server, QUESTIONS[3]).choices[0].message.content


@pytest.mark.parametrize("stream", [True, False])
def test_the_slot_of_a_client_that_leaves_is_free_before_the_next_step(
    kin: Pair, pool: ThreadPoolExecutor, stream: bool
) -> None:
    with running(deployed(kin, slots=1)) as server:
        engine = server.engine
        engine.gate.clear()
        body = asked(QUESTIONS[0], stream=stream)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=1)
        until(lambda: server.metric("citer_left_total") == 1, 30)
        assert server.service.worker.clients == 0
        [sequence] = engine._sequences.values()  # the engine waits within the step before
        stays = pool.submit(ask, server, QUESTIONS[1])
        until(lambda: server.service.worker.clients == 1, 30)
        seen: list[Any] = []
        engine.watch = lambda: seen.append([*engine._sequences.values()])
        engine.gate.set()
        assert stays.result(30).choices[0].message.content
        assert sequence in seen[0]
        assert sequence not in seen[1]


def test_a_client_that_leaves_within_its_body_is_no_failure(
    kin: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/v1/chat/completions"
    with running(deployed(kin)) as server:
        with server.connected() as gone:
            gone.sendall(head("POST", path, **{"Content-Length": "99"}) + b"{")
        until(lambda: server.metric("citer_requests_total", path=path, status="499"), 30)
    assert not caplog.records


def test_a_promotion_is_taken_up_without_losing_a_request(
    kin: Pair, pool: ThreadPoolExecutor
) -> None:
    new = Release("tiny/2", deployed(kin, seed=7, rule=Rule("score", 1.0)))
    with running(deployed(kin)) as server:
        old, first = server.engine, weakref.ref(server.service.release.deployment)
        begun = held(server, pool, QUESTIONS[:5])
        server.shelf.next = new
        until(lambda: server.service.release is new, 30)
        late = [pool.submit(ask, server, question) for question in QUESTIONS[5:8]]
        until(lambda: server.service.worker.clients == 8, 30)
        old.gate.set()
        assert {each.result(30).system_fingerprint for each in begun} == {"tiny/1"}
        assert {each.result(30).system_fingerprint for each in late} == {"tiny/2"}
        assert {routing(each.result())["rule"] for each in late} == {"score 1.0"}
        until(lambda: not server.service.worker._handles, 30)
        [model] = server.client().models.list()
        assert (model.model_extra or {})["version"] == "tiny/2"
        gc.collect()
        assert first() is None, "the old release is kept"
        assert server.metric("citer_deployed_info", version="tiny/2", rule="score 1.0") == 1


def test_a_version_that_cannot_be_loaded_changes_nothing(kin: Pair) -> None:
    with running(deployed(kin)) as server:
        server.shelf.failure = ValueError("no such version")
        looks = server.shelf.looks
        until(lambda: server.shelf.looks > looks + 2, 30)
        assert ask(server, QUESTIONS[0]).system_fingerprint == "tiny/1"


def test_a_server_that_stops_answers_what_runs_and_takes_no_more(
    kin: Pair, pool: ThreadPoolExecutor
) -> None:
    with running(deployed(kin, slots=2)) as server:
        begun = held(server, pool, QUESTIONS[:3])
        server.server.handle_exit(15, None)
        until(lambda: not server.server.servers[0].sockets, 30)
        with pytest.raises(openai.APIConnectionError):
            ask(server, QUESTIONS[3])
        server.engine.gate.set()
        assert all(each.result(30).choices[0].message.content for each in begun)
        server.thread.join(30)
        assert not server.thread.is_alive()


def test_the_death_of_the_engine_is_told_to_all_at_once(
    kin: Pair, pool: ThreadPoolExecutor
) -> None:
    with running(deployed(kin)) as server:
        left = iter(range(12))
        server.engine.watch = lambda: next(left, None) is None and server.engine.gate.clear()
        stream = server.client().chat.completions.create(**asked(QUESTIONS[0], stream=True))
        chunks = [next(iter(stream))]
        assert server.engine.waits.wait(30)
        begun = [pool.submit(ask, server, question) for question in QUESTIONS[1:3]]
        until(lambda: server.service.worker.clients == 3, 30)
        server.engine.failure = "the LLM is lost"
        server.engine.gate.set()
        for each in begun:
            with pytest.raises(openai.InternalServerError, match="the LLM is lost") as caught:
                each.result(30)
            assert caught.value.status_code == 503
        with pytest.raises(openai.APIError, match="the LLM is lost"):
            chunks += list(stream)
        assert not any(chunk.choices[0].finish_reason for chunk in chunks)
        server.thread.join(30)
        assert not server.thread.is_alive()  # a supervisor starts it again
        assert "the LLM is lost" in str(server.service.worker.failure)
        assert server.service.worker.clients == 0


def test_memory_that_runs_out_ends_the_requests_in_flight_alone(kin: Pair) -> None:
    """A long prompt lets the KV cache of every slot grow."""
    with running(deployed(kin)) as server:
        full = iter([torch.OutOfMemoryError("CUDA out of memory")])

        def watch() -> None:
            if error := next(full, None):
                raise error

        server.engine.watch = watch
        with pytest.raises(openai.InternalServerError, match=r"lower answer\.slots") as caught:
            ask(server, QUESTIONS[0])
        assert caught.value.status_code == 503
        assert ask(server, QUESTIONS[0]).choices[0].message.content
        assert server.service.worker.failure is None


def test_an_observer_sees_whole_answers_to_chats_and_its_errors_change_no_answer(
    kin: Pair,
) -> None:
    seen: list[Reply] = []

    def failing(reply: Reply) -> None:
        seen.append(reply)
        raise RuntimeError("a full disk")

    with running(deployed(kin), observer=failing) as server:
        texts = [ask(server, q).choices[0].message.content for q in QUESTIONS[:3]]
        "".join(str(chunk) for chunk in ask(server, QUESTIONS[3], stream=True))
        server.client().completions.create(model="tiny", prompt="Problem: 2")
        with pytest.raises(openai.BadRequestError):
            ask(server, "", n=2)
    assert [reply.problem.question for reply in seen] == QUESTIONS[:4]
    assert [reply.completion for reply in seen[:3]] == texts


def test_metrics_are_the_sums_of_the_replies(kin: Pair) -> None:
    with running(deployed(kin)) as server:
        found = [routing(ask(server, question)) for question in QUESTIONS[:4]]
        total: Callable[[str], int] = lambda name: sum(each[name] for each in found)  # noqa: E731
        answered = {"path": "/v1/chat/completions", "status": "200"}
        until(lambda: server.metric("citer_requests_total", **answered) == 4, 30)
        text = httpx.get(f"{server.url}/metrics").text
        agreed, disagreed = total("audited") - total("disagreed"), total("disagreed")
        assert f'citer_tokens_total{{model="llm"}} {total("llm_tokens"):.1f}' in text
        assert f"citer_visits_total {total('visits'):.1f}" in text
        assert f'citer_audited_tokens_total{{verdict="agreed"}} {agreed:.1f}' in text
        assert f'citer_audited_tokens_total{{verdict="disagreed"}} {disagreed:.1f}' in text
        assert disagreed > 0
