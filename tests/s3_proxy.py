"""An HTTP proxy before an S3 server that throttles, delays, cuts, flips, trickles and loses what passes.

It forwards the `Host` that it was asked for, so that signatures hold.
"""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DRIP_WAIT_S: Final = 0.05
SIP_BYTES: Final = 65_536
SIP_WAIT_S: Final = 0.1
TRICKLE_BYTES: Final = 2_048
_SLOW_DOWN: Final = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>secret words</Message></Error>"
_REFUSED: Final = b"<?xml version='1.0'?><Error><Code>InvalidArgument</Code></Error>"
_HOP_BY_HOP: Final = frozenset({"connection", "expect", "transfer-encoding", "content-length", "keep-alive"})


class Fault(StrEnum):
    """What may happen to a request."""

    THROTTLE = "throttle"  # 503 SlowDown, and the server never sees it
    CUT = "cut"  # half of the answer's body, then the end of the connection
    FLIP_ANSWER = "flip_answer"  # one bit of the answer's body
    FLIP_END = "flip_end"  # one bit of the last byte of the answer's body
    FLIP_REQUEST = "flip_request"  # one bit of the request's body
    RESET = "reset"  # half of the answer's body, then the connection is reset
    DRIP = "drip"  # the answer's body, byte by byte
    TRICKLE = "trickle"  # the answer's body, slowly
    SIP = "sip"  # the request's body is taken slowly
    LOSE_ANSWER = "lose_answer"  # the server has done it, and nobody is told
    STALL = "stall"  # nothing is answered, for long


class S3Proxy:
    """Forwards from a port of its own to an S3 server's. Leaving its context closes it.

    Attributes:
        endpoint: where boto3 finds it.
        seen: method and headers, in lower case, of every request.
        connections: how many were opened to it.
        delay_s: how much longer every request takes, as if the server were far away.
        before_put: called before a conditional PUT is forwarded.
        refuses: whether a request with these headers is answered 400.
    """

    def __init__(self, port: int) -> None:
        self.seen: list[tuple[str, Mapping[str, str]]] = []
        self.connections = 0
        self.delay_s = 0.0
        self.before_put: Callable[[], object] = lambda: None
        self.refuses: Callable[[Mapping[str, str]], bool] = lambda _: False
        self._port = port
        self._planned: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._shares: dict[Fault, tuple[float, Callable[[str, Mapping[str, str]], bool]]] = {}
        self._random = random.Random(7)  # noqa: S311 - the same faults in every run
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def inject(self, method: str, fault: Fault, times: int = 1) -> None:
        """Do this to the next requests of `method`."""
        self._planned[method].extend([fault] * times)

    def share(self, fault: Fault, share: float, of: Callable[[str, Mapping[str, str]], bool] = lambda *_: True) -> None:
        """Do this to a share of all requests from now on, or of those whose method and headers are `of` a kind."""
        self._shares[fault] = share, of

    def count(self, method: str) -> int:
        """Return how many requests of `method` there were."""
        return sum(seen == method for seen, _ in self.seen)

    def fault_of(self, method: str, headers: Mapping[str, str]) -> Fault | None:
        """Note a request; return what happens to it."""
        with self._lock:
            self.seen.append((method, headers))
            if self._planned[method]:
                return self._planned[method].popleft()
            shares = [(fault, share) for fault, (share, of) in self._shares.items() if of(method, headers)]
            return next((fault for fault, share in shares if self._random.random() < share), None)

    def flipped(self, content: bytes) -> bytes:
        """Return the content with one bit flipped, anywhere."""
        if not content:
            return content
        at, bit = self._random.randrange(len(content)), self._random.randrange(8)
        return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]

    def stall(self) -> None:
        """Wait until the proxy closes."""
        self._stopping.wait()

    def upstream(self) -> http.client.HTTPConnection:
        """Return a connection to the server."""
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, proxy: S3Proxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        self.proxy.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, *_: object) -> None:
        """A client that went away is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65_536
    server: _Server

    def handle_one(self) -> None:
        proxy = self.server.proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = proxy.fault_of(self.command, headers)
        body = self._body(int(headers.get("content-length", 0)), SIP_WAIT_S if fault is Fault.SIP else 0.0)
        if fault is Fault.THROTTLE or proxy.refuses(headers):
            self._answer(503 if fault else 400, {}, _SLOW_DOWN if fault else _REFUSED, None)
            return
        if fault is Fault.STALL:
            proxy.stall()
            self.close_connection = True
            return
        time.sleep(proxy.delay_s)
        if "if-none-match" in headers:
            proxy.before_put()
        status, answer_headers, content = self._forward(proxy.flipped(body) if fault is Fault.FLIP_REQUEST else body)
        if fault is Fault.LOSE_ANSWER:
            self.close_connection = True
            return
        self._answer(status, answer_headers, content, fault)

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_one  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _body(self, size_bytes: int, wait_s: float) -> bytes:
        pieces = []
        for start in range(0, size_bytes, SIP_BYTES):
            pieces.append(self.rfile.read(min(SIP_BYTES, size_bytes - start)))
            time.sleep(wait_s)
        return b"".join(pieces)

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = self.server.proxy.upstream()
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP}
            if self.command == "HEAD":
                headers["Content-Length"] = answer.getheader("Content-Length", "0")
            return answer.status, headers, answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, fault: Fault | None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault is Fault.FLIP_ANSWER:
            content = self.server.proxy.flipped(content)
        if fault is Fault.FLIP_END:
            content = content[:-1] + bytes([content[-1] ^ 1])
        if fault in (Fault.CUT, Fault.RESET):
            content = content[: len(content) // 2]
            self.close_connection = True
        piece_bytes = {Fault.DRIP: 1, Fault.TRICKLE: TRICKLE_BYTES}.get(fault) if fault else None
        for at in range(0, len(content), piece_bytes or max(1, len(content))):
            self.wfile.write(content[at : at + piece_bytes] if piece_bytes else content)
            if piece_bytes:
                self.wfile.flush()
                time.sleep(DRIP_WAIT_S)
        if fault is Fault.RESET:
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
