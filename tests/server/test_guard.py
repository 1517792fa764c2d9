"""Pages of other sites, slow clients and bodies without an end."""

import json
import socket
from contextlib import closing, suppress

import httpx
import pytest

from citer.models.pair import Pair
from tests.flows.servers import until
from tests.server.running import QUESTIONS, Running, asked, deployed, head, running

CHAT = "/v1/chat/completions"
BODY = json.dumps(asked(QUESTIONS[0], max_tokens=2)).encode()
CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
TWICE = {"Content-Length": "3", "Transfer-Encoding": "chunked"}


def post(server: Running, headers: dict[str, str], body: bytes = BODY) -> httpx.Response:
    with httpx.Client() as client:
        request = client.build_request("POST", server.url + CHAT, content=body)
        request.headers.update(headers)
        return client.send(request)


def received(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    parts = []
    with suppress(ConnectionResetError):  # it may leave bytes unread
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def takes(connection: socket.socket, data: bytes) -> bool:
    """Send data; return whether the server still reads the connection."""
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def error(reply: httpx.Response) -> str:
    assert reply.json()["error"]["type"] == "invalid_request_error"
    message = reply.json()["error"]["message"]
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON ; charset=utf-8", 200),
        ("text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ],
)
def test_a_body_must_be_declared_as_json(server: Running, kind: str, status: int) -> None:
    reply = post(server, {"Content-Type": kind})
    assert reply.status_code == status
    if status != 200:
        assert error(reply) == f"Content-Type: {kind!r}; expected application/json"
    assert httpx.post(server.url + CHAT, content=BODY).status_code == 415


@pytest.mark.parametrize("path", [CHAT, "/", "/v1/models", "/health", "/metrics"])
@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Host": "rebound.example"}, "Host: 'rebound.example'; expected"),
        ({"Host": "localhost.example:8000"}, "Host: 'localhost.example:8000'"),
        ({"Host": "192.0.2.7"}, "Host: '192.0.2.7'"),
        ({"Host": "[::1"}, "Host: '[::1'"),
        ({"Host": ""}, "Host: ''"),
        ({"Origin": "https://page.example"}, "Origin: 'https://page.example'; expected"),
        ({"Origin": "http://localhost"}, "Origin: 'http://localhost'"),
        ({"Origin": "null"}, "Origin: 'null'"),
        ({"Host": "a.example", "Origin": "http://a.example"}, "Host: 'a.example'"),
    ],
)
def test_a_page_of_another_site_is_refused_on_all_routes(
    server: Running, path: str, headers: dict[str, str], named: str
) -> None:
    if path == CHAT:
        reply = post(server, headers | {"Content-Type": "application/json"})
    else:
        reply = httpx.get(server.url + path, headers=headers)
    assert reply.status_code == 403
    assert error(reply).startswith(named)


@pytest.mark.parametrize("path", ["/health/", "/v1/models/", CHAT + "/"])
def test_no_redirect_passes_by_the_guards(server: Running, path: str) -> None:
    reply = httpx.get(server.url + path, headers={"Host": "rebound.example"})
    assert reply.status_code == 404
    assert "location" not in reply.headers


@pytest.mark.parametrize("host", ["localhost:80", "LOCALHOST", "127.0.0.1", "[::1]:8000"])
def test_the_servers_own_pages_may_ask(server: Running, host: str) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert httpx.get(f"{server.url}/v1/models", headers=headers).is_success


def test_with_keys_the_keys_decide(kin: Pair) -> None:
    headers = {"Host": "gpu.example.org", "Origin": "https://page.example"}
    with running(deployed(kin), keys=["secret"]) as server:
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 401
        headers["Authorization"] = "Bearer secret"
        assert httpx.get(f"{server.url}/v1/models", headers=headers).is_success


@pytest.fixture
def impatient(server: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setattr("citer.serving.server.app.PATIENCE", 0.2)
    return server


@pytest.mark.parametrize(
    "sent",
    [
        head("POST", CHAT, **{"Content-Length": "99"}) + b'{"model"',
        head("POST", CHAT, **{"Transfer-Encoding": "chunked"}) + b"5\r\n{",
    ],
)
def test_a_body_that_does_not_arrive_in_time_ends_its_connection(
    impatient: Running, sent: bytes
) -> None:
    with closing(impatient.connected()) as slow:
        slow.sendall(sent)
        assert received(slow).startswith(b"HTTP/1.1 408")


def test_one_byte_at_a_time_buys_no_time(impatient: Running) -> None:
    with closing(impatient.connected()) as slow:
        slow.sendall(head("POST", CHAT, **{"Content-Length": "100000"}))
        until(lambda: not takes(slow, b" "), 30)


def test_the_time_of_an_answer_does_not_count(impatient: Running) -> None:
    impatient.engine.gate.clear()
    with closing(impatient.connected()) as waits:
        waits.sendall(head("POST", CHAT, **{"Content-Length": str(len(BODY))}) + BODY)
        until(lambda: impatient.service.worker.clients == 1, 30)
        with closing(impatient.connected()) as slow:
            slow.sendall(head("POST", CHAT, **{"Content-Length": "99"}))
            received(slow)  # a deadline that began later has passed
        impatient.engine.gate.set()
        assert waits.recv(2**16).startswith(b"HTTP/1.1 200")


def test_a_body_with_two_lengths_is_refused(server: Running) -> None:
    with closing(server.connected()) as smuggler:
        smuggler.sendall(head("POST", CHAT, **TWICE) + b"0\r\n\r\nGET /health HTTP/1.1\r\n")
        reply = received(smuggler)
    assert reply.startswith(b"HTTP/1.1 400")
    assert reply.count(b"HTTP/1.1") == 1
    assert b"Content-Length: given with Transfer-Encoding" in reply


def test_an_endless_body_is_read_to_the_limit_only(server: Running) -> None:
    with closing(server.connected()) as endless:
        takes(endless, head("POST", CHAT, **{"Transfer-Encoding": "chunked"}) + CHUNK * 3)
        reply = received(endless)
        assert reply.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in reply.lower()
        assert b"body: expected at most 131,072 bytes" in reply
        until(lambda: not takes(endless, CHUNK), 30)


@pytest.mark.parametrize("depth", [500, 60_000])
@pytest.mark.parametrize("field", ["messages", "metadata"])
def test_deeply_nested_json_is_refused_in_one_line(server: Running, depth: int, field: str) -> None:
    nested = b"[" * depth + b"]" * depth
    body = BODY[:-1] + f', "{field}": '.encode() + nested + b"}"
    reply = post(server, {"Content-Type": "application/json"}, body)
    assert reply.status_code == 400
    assert error(reply).startswith("top level: not JSON: recursion limit exceeded")
