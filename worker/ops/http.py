"""A small HTTP server on one thread: it answers GET, closes the connection, and lets nobody keep it busy.

Whoever asks slowly is cut off after a few seconds; of too many connections at a time the oldest is closed, so that a
probe is always heard. Whatever goes wrong with a request stays there. The server knows paths and answers; what they
mean is for the function that it is given, which must not block.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote

import structlog

from worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)

REQUEST_S: Final = 5.0  # from the connection to the last byte of the answer
MOST_CONNECTIONS: Final = 32
HEAD_BYTES: Final = 16 * 1024
STOP_S: Final = 2.0
LOOK_S: Final = 0.1
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: a path without its query, unquoted; the header `Accept`; the query as it came."""

    path: str
    accept: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What it is answered with."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


class Server:
    """Serves until the block ends.

    Args:
        host, port: to listen on; port 0 is any that is free.
        respond: returns the answer to a GET; called on the server's thread.

    Attributes:
        port: that it listens on.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, respond: Callable[[Request], Answer]) -> None:
        is_6 = ":" in host
        family, dual = socket.AF_INET6 if is_6 else socket.AF_INET, is_6 and socket.has_dualstack_ipv6()
        try:
            self._socket = socket.create_server(
                (host, port), family=family, backlog=MOST_CONNECTIONS, dualstack_ipv6=dual
            )
        except (OSError, OverflowError) as exc:
            text = f"cannot listen on {host} port {port}: {exc}; change BATCHMILL_HTTP_HOST or BATCHMILL_HTTP_PORT"
            raise ConfigError(text) from exc
        self.port: int = self._socket.getsockname()[1]
        self._respond = respond
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:  # nobody's work depends on it; the probes will notice
            log.exception("http.died")
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket, limit=HEAD_BYTES)
        await self._stop.wait()
        server.close()
        await asyncio.sleep(0)  # what is just being accepted becomes a task
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in self._open.values():
                writer.transport.abort()
            await asyncio.wait(others, timeout=LOOK_S)
        await asyncio.sleep(0)  # the last transports close their sockets

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        while len(self._open) >= MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            self._open.pop(oldest).transport.abort()
        self._open[task] = writer
        try:
            async with asyncio.timeout(REQUEST_S):
                writer.write(self._answered(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # gone, too slow, or no HTTP
        finally:
            writer.transport.abort()
            self._open.pop(task, None)

    def _answered(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = (*lines[0].split(" "), "", "", "")[:3]
        if method not in {"GET", "HEAD"}:
            return _encoded(Answer(b"GET only\n", status=HTTPStatus.METHOD_NOT_ALLOWED))
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        try:
            path, _, query = target.partition("?")
            answer = self._respond(Request(unquote(path), headers.get("accept", ""), query))
        except Exception as exc:  # makes the answer; a page that fails must not end the server
            log.exception("http.failed", error=type(exc).__name__)
            answer = Answer(b"see the log\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        return _encoded(answer, with_body=method == "GET")


def not_found(request: Request) -> Answer:
    """Return the answer to a path that is none."""
    del request
    return Answer(b"no such page\n", status=HTTPStatus.NOT_FOUND)


def _encoded(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (answer.body if with_body else b"")
