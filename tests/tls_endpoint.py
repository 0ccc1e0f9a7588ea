"""A TLS endpoint in front of a plain server, for binaries that are built without: `… CERTIFICATE KEY PORT`.

Prints the port that it listens on, and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from contextlib import suppress


async def serve(certificate: str, key: str, port: int) -> None:
    """Forward what comes over TLS to the server at `port`, and back."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_forward(reader, inner_writer), _forward(inner_reader, writer))

    listening = await asyncio.start_server(join, "127.0.0.1", 0, ssl=context)
    print(listening.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - its answer
    await listening.serve_forever()


async def _forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    target.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
