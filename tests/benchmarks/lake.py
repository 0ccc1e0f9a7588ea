"""A bulk run's input and output on the real S3 server: tickets go there as Parquet, labels come back.

The files have what an export of tickets has: the text, an id, and columns that only pass through. It knows the layout
of an output (manifest, parts), no worker and no clock.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.broker import BenchError
from tests.s3_servers import BUCKET

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.workload import Ticket
    from tests.s3_servers import S3Server

ROW_GROUP_ROWS = 65_536
CHANNELS = ("mail", "phone", "chat", "form")
OPENED = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Written:
    """What a run left behind.

    Attributes:
        parts: how many.
        rows: of the parts, counted in them.
        labels: of all rows in the order of the input, None where the text was truncated.
    """

    parts: int
    rows: int
    labels: list[str | None]


class Lake:
    """The bucket of a server."""

    def __init__(self, server: S3Server) -> None:
        self._client = server.client()

    def put(self, name: str, tickets: Sequence[Ticket]) -> str:
        """Store the tickets as one file; its address."""
        content = io.BytesIO()
        write_tickets(content, tickets)
        self._client.put_object(Bucket=BUCKET, Key=f"in/{name}.parquet", Body=content.getvalue())
        return f"s3://{BUCKET}/in/{name}.parquet"

    def output(self, name: str) -> str:
        """The prefix of a run, without a slash at its end."""
        return f"s3://{BUCKET}/out/{name}"

    def written(self, output: str, tickets: Sequence[Ticket]) -> Written:
        """Read what a run wrote, by its manifest, and check that it has every row once and in order.

        Raises:
            BenchError: a row is missing, doubled, out of place or without a label; or the run is not complete.
        """
        self._bytes(f"{output}/_SUCCESS")
        manifest = json.loads(self._bytes(f"{output}/manifest.json"))
        columns = ["id", "label", "truncated"]
        parts = [pq.read_table(io.BytesIO(self._bytes(part["uri"])), columns=columns) for part in manifest["parts"]]
        table = pa.concat_tables(parts)
        if table.column("id").to_pylist() != [ticket.id for ticket in tickets]:
            raise BenchError(f"{output}: the parts do not hold the input's rows, each once and in their order")
        if table.column("label").null_count:
            raise BenchError(f"{output}: {table.column('label').null_count} rows have no label")
        pairs = zip(table.column("label").to_pylist(), table.column("truncated").to_pylist(), strict=True)
        return Written(len(parts), table.num_rows, [None if truncated else label for label, truncated in pairs])

    def _bytes(self, uri: str) -> bytes:
        key = uri.removeprefix(f"s3://{BUCKET}/")
        content: bytes = self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content


def write_tickets(where: Path | io.BytesIO, tickets: Sequence[Ticket]) -> None:
    """Write the tickets as Parquet, zstd, in row groups of `ROW_GROUP_ROWS`."""
    columns: dict[str, Any] = {  # lists of different kinds
        "id": [ticket.id for ticket in tickets],
        "opened_at": [OPENED + timedelta(seconds=17 * row) for row in range(len(tickets))],
        "channel": [CHANNELS[row % len(CHANNELS)] for row in range(len(tickets))],
        "text": [ticket.text for ticket in tickets],
    }
    pq.write_table(pa.table(columns), where, compression="zstd", row_group_size=ROW_GROUP_ROWS)
