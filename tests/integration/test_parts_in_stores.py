"""Parts of Parquet on their way through an object store, and the end of a process that has used one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from worker.storage.objects import Creation, Outcome
from worker.storage.parquet import ParquetTable
from worker.storage.parts import Part, PartWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores import Place

ROWS: Final = 20_000
TEXTS: Final = [None if row % 7 == 0 else f"ticket {row} {'ü' * (row % 100)}" for row in range(ROWS)]
EXIT_S: Final = 10.0
USES_A_STORE: Final = """
import os, sys, threading
from worker.storage.parquet import ParquetTable
from worker.storage.s3 import S3Store

store = S3Store()
info = store.info(sys.argv[2])
table = ParquetTable(store.open(info), "part")
used = threading.Event()

def use():
    next(table.texts(["text"], 0, 10))
    store.list(os.path.dirname(info.uri))
    used.set()

def use_for_ever():
    while True:
        store.open(info).read(1000)
        used.set()

if sys.argv[1] == "main":
    use()
elif sys.argv[1] == "thread":
    threading.Thread(target=use).start()
else:
    # Without Arrow: CPython before 3.14 aborts where it ends a daemon thread below C++ (python/cpython#87135).
    threading.Thread(target=use_for_ever, daemon=True).start()
used.wait()
print("used", flush=True)
"""


def write(path: Path) -> Part:
    batch = pa.record_batch({"text": pa.array(TEXTS), "row": pa.array(range(ROWS))})
    with PartWriter(path, batch.schema, {}, row_group_rows=3000) as writer:
        writer.write(batch.cast(writer.schema))
    return writer.part


@pytest.fixture
def stored(remote_place: Place, tmp_path: Path) -> str:
    """The URI of a part on an S3 server."""
    uri = f"{remote_place.prefix}/part.parquet"
    remote_place.store.create(uri, tmp_path / "part", write(tmp_path / "part").sha256)
    return uri


def test_a_part_comes_back_from_a_store_as_it_was_written(place: Place, tmp_path: Path) -> None:
    part, uri = write(tmp_path / "part"), f"{place.prefix}/day=1/part-0.parquet"
    assert place.store.create(uri, tmp_path / "part", part.sha256) == Creation(Outcome.CREATED, part.sha256)
    [info] = place.store.list(f"{place.prefix}/**/*.parquet")
    assert (info.uri, info.size_bytes) == (uri, part.size)
    with place.store.open(info) as reader:
        table = ParquetTable(reader, info.uri)
        assert table.rows == part.rows == ROWS
        for start, stop in ((0, ROWS), (2999, 3001), (17_500, ROWS)):
            texts = [text for batch in table.texts(["text"], start, stop) for text in batch["text"]]
            assert texts == TEXTS[start:stop]


@pytest.mark.parametrize("caller", ["main", "thread", "daemon"])
def test_arrow_50188_a_process_ends_though_its_store_is_still_there(stored: str, caller: str) -> None:
    with subprocess.Popen([sys.executable, "-c", USES_A_STORE, caller, stored], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"used\n"
            assert process.wait(EXIT_S) == 0
        finally:
            process.kill()
