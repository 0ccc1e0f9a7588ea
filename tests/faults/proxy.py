"""A small TCP proxy between a worker and its server, which cuts, freezes and slows what passes.

Frozen means half-open: bytes vanish, and neither side is told. A new connection is never frozen, as after a firewall
has forgotten the old ones.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

CHUNK_BYTES: Final = 65_536


@dataclass(eq=False)
class _Link:
    client: socket.socket
    server: socket.socket
    frozen: bool = False

    def close(self) -> None:
        for one in (self.client, self.server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Forwards from a port of its own to `port`, both on this host. Leaving its context closes everything.

    Attributes:
        delay_s: how long each piece is held up, in either direction.
        refusing: whether new connections are closed at once.
        url: where a worker finds it.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[_Link] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.delay_s = 0.0
        self.refusing = False
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def cut(self) -> None:
        """Close every connection, on both sides."""
        links, self._links = self._links, []
        for link in links:
            link.close()

    def freeze(self) -> None:
        """Let nothing pass through the connections that there are now, and close none."""
        for link in self._links:
            link.frozen = True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                link = _Link(client, socket.create_connection(("127.0.0.1", self._port)))
            except OSError:
                client.close()
                continue
            self._links.append(link)
            for source, sink in ((link.client, link.server), (link.server, link.client)):
                thread = threading.Thread(target=self._pump, args=(link, source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, link: _Link, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(CHUNK_BYTES):
                time.sleep(self.delay_s)
                if not link.frozen:
                    sink.sendall(piece)
        if not link.frozen:
            link.close()
        source.close()
