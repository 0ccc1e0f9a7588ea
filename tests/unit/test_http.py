"""The small server: one thread that nobody can occupy."""

from __future__ import annotations

import socket
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from tests.pages import get
from tests.services import free_port, wait_until
from worker.errors import ConfigError
from worker.ops import http
from worker.ops.http import JSON, MOST_CONNECTIONS, Answer, Request, Server, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = b"GET /live HTTP/1.1\r\nHost: here\r\n\r\n"


def respond(request: Request) -> Answer:
    match request.path:
        case "/live":
            return Answer(b"{}", JSON)
        case "/accept":
            return Answer(request.accept.encode())
        case "/big":
            return Answer(b"x" * 5_000_000)
        case "/broken":
            raise ValueError("my secret")
        case "/a queue":
            return Answer(f"unquoted, {request.query}".encode())
        case _:
            return not_found(request)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("127.0.0.1", 0, respond) as started:
        yield started


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def received(client: socket.socket) -> bytes:
    """All until the server closes."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def test_it_answers_with_status_type_and_body_and_closes(server: Server) -> None:
    with connect(server) as client:
        client.sendall(ASKED)
        head, _, body = received(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: application/json\r\n" in head
    assert b"Content-Length: 2\r\n" in head
    assert body == b"{}"


def test_paths_are_unquoted_and_a_query_comes_as_it_is(server: Server) -> None:
    assert get(server.port, "/a%20queue?x=%201&y=/?") == (200, "unquoted, x=%201&y=/?")
    assert get(server.port, "/a%20queue") == (200, "unquoted, ")
    assert get(server.port, "/accept", accept="text/plain") == (200, "text/plain")
    assert get(server.port, "/else").status == 404


def test_a_large_answer_comes_whole(server: Server) -> None:
    assert len(get(server.port, "/big").body) == 5_000_000


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 405), ("DELETE", 405)])
def test_other_methods_have_no_effect(server: Server, method: str, status: int) -> None:
    page = get(server.port, "/live", method)
    assert page.status == status
    assert page.body in ("", "GET only\n")


def test_a_page_that_fails_is_that_pages_failure_and_says_nothing_of_why(server: Server) -> None:
    assert get(server.port, "/broken") == (HTTPStatus.INTERNAL_SERVER_ERROR, "see the log\n")
    assert get(server.port, "/live").status == 200


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n", b"GET /" + b"a" * 70_000, b"GET\r\n\r\n"]
)
def test_what_is_no_request_harms_nobody(server: Server, sent: bytes) -> None:
    with connect(server) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert b"200 OK" not in received(client)
    assert get(server.port, "/live").status == 200


def test_whoever_is_slow_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.3)
    with connect(server) as client:
        client.sendall(b"GET /live HT")
        began_s = time.monotonic()
        assert received(client) == b""
    assert 0.2 < time.monotonic() - began_s < 5


def test_whoever_does_not_read_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 1.0)
    with connect(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(ASKED.replace(b"/live", b"/big"))
        wait_until(lambda: server._open, what="the server answers")  # noqa: SLF001 - nothing else shows it
        wait_until(lambda: not server._open, what="the server gives up")  # noqa: SLF001 - as above


def test_a_probe_is_heard_through_any_number_of_silent_connections(server: Server) -> None:
    silent = [connect(server) for _ in range(3 * MOST_CONNECTIONS)]
    assert get(server.port, "/live").status == 200
    assert received(silent[0]) == b""  # the oldest were closed for the newest
    for client in silent:
        client.close()


def test_it_uses_one_thread_whatever_comes(server: Server) -> None:
    before = threading.active_count()
    clients = [connect(server) for _ in range(20)]
    for client in clients:
        client.sendall(ASKED)
    assert all(b"200 OK" in received(client) for client in clients)
    assert threading.active_count() == before
    for client in clients:
        client.close()


def test_a_port_that_is_taken_is_refused_with_the_remedy(server: Server) -> None:
    with pytest.raises(ConfigError, match="BATCHMILL_HTTP_PORT"):
        Server("127.0.0.1", server.port, respond)


def test_nothing_answers_after_the_end() -> None:
    port = free_port()
    with Server("127.0.0.1", port, respond):
        assert get(port, "/live").status == 200
    assert get(port, "/live").status == 0
