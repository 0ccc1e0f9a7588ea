"""An S3 server with the input of bulk runs in it, and what stands in their outputs.

It is asked directly, whatever the workers' way to it is.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.bulk_manifest import BulkManifest
from tests.faults.oracle import texts
from tests.s3_servers import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from schemas.bulk_plan import BulkPlan
    from tests.s3_servers import S3Server

Json = dict[str, Any]  # what json.loads makes

FILES: Final = 2
NO_TEXT_EVERY: Final = 97
REPEATED_EVERY: Final = 31


class Row(NamedTuple):
    """A row of the result, with a column that was only passed through."""

    id: str
    number: int
    label: str | None
    score: float | None
    error_code: str | None


@dataclass(frozen=True)
class Lake:
    """An S3 server with an input in it.

    Attributes:
        server: started.
        rows: of the input.
        shard_rows: the most rows of a shard.
        folder: of the input, below the prefix.
        prefix: of the input and the outputs, in the bucket.
    """

    server: S3Server
    rows: int
    shard_rows: int
    folder: str = "in"
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def request(self) -> Json:
        """What is asked of every run, but for its output."""
        return {
            "inputs": [f"s3://{BUCKET}/{self.prefix}/{self.folder}/**/*.parquet"],
            "text": "text",
            "id": "id",
            "shard_rows": self.shard_rows,
        }

    def fill(self, *magic: str, poison: Mapping[int, str] | None = None) -> Lake:
        """Store the input: texts with the magic words, some of them missing, some twice; `poison` by row."""
        words: list[str | None] = [*texts(self.rows, *magic)]
        for row in range(NO_TEXT_EVERY // 2, self.rows, NO_TEXT_EVERY):
            words[row] = None
        for row in range(REPEATED_EVERY, self.rows, REPEATED_EVERY):
            words[row] = words[row - 1]
        for row, text in (poison or {}).items():
            words[row] = text
        for file in range(FILES):
            start, stop = file * self.rows // FILES, (file + 1) * self.rows // FILES
            key = f"{self.prefix}/{self.folder}/dt=2026-01-0{file + 1}/tickets.parquet"
            self._put(key, _parquet(words[start:stop], start, self.shard_rows))
        return self

    def new_output(self) -> str:
        """Return an output that nobody has used."""
        return f"s3://{BUCKET}/{self.prefix}/out/{uuid.uuid4().hex}"

    def content(self, uri: str) -> bytes:
        """Return an object."""
        with self._client() as client:
            content: bytes = client.get_object(Bucket=BUCKET, Key=key_of(uri))["Body"].read()
        return content

    def names(self, output: str) -> set[str]:
        """Return the names of all objects below an output."""
        with self._client() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{key_of(output)}/")
            return {
                entry["Key"].removeprefix(f"{key_of(output)}/") for page in pages for entry in page.get("Contents", ())
            }

    def put_plan(self, plan: BulkPlan, output: str) -> BulkPlan:
        """Let a run into this output go by a plan that was made for another one."""
        request = plan.request.model_copy(update={"output": output})
        copy = plan.model_copy(update={"job_id": str(uuid.uuid4()), "request": request})
        self._put(f"{key_of(output)}/_batchmill/plan.json", copy.model_dump_json().encode())
        return copy

    def manifest(self, output: str) -> BulkManifest:
        """Return the manifest of an output."""
        return BulkManifest.model_validate_json(self.content(f"{output}/manifest.json"))

    def result(self, output: str) -> list[Row]:
        """Return the rows of all parts of the manifest, in its order."""
        return self._rows(part.uri for part in self.manifest(output).parts)

    def rows_of_parts(self, output: str) -> list[Row]:
        """Return the rows of whatever parts there are, in the order of their names."""
        return self._rows(f"{output}/{name}" for name in sorted(self.names(output)) if name.endswith(".parquet"))

    def _rows(self, uris: Iterable[str]) -> list[Row]:
        parts = [pq.read_table(io.BytesIO(self.content(uri))) for uri in uris]
        columns = pa.concat_tables(parts).select(Row._fields).to_pydict()
        return [Row(*values) for values in zip(*columns.values(), strict=True)]

    def _put(self, key: str, content: bytes) -> None:
        with self._client() as client:
            digest = hashlib.sha256(content).hexdigest()
            client.put_object(Bucket=BUCKET, Key=key, Body=content, Metadata={"sha256": digest})

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = self.server.client()
        try:
            yield client
        finally:
            client.close()


def key_of(uri: str) -> str:
    """Return the key of an address in the bucket."""
    return uri.removeprefix(f"s3://{BUCKET}/")


def _parquet(words: Sequence[str | None], first: int, group_rows: int) -> bytes:
    numbers = range(first, first + len(words))
    table = pa.table({"id": [f"T-{number}" for number in numbers], "text": words, "number": list(numbers)})
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=group_rows, write_page_checksum=True)
    return content.getvalue()
