import gc
import importlib
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from worker.errors import BrokenPart, ColumnError, UnreadableTable
from worker.storage import parts
from worker.storage.labelling import Kind, PartSchema, ResultColumn, Span, check_names, write_part
from worker.storage.parquet import ParquetTable
from worker.storage.parts import PartWriter
from worker.storage.rows import JsonlTable
from worker.storage.unify import unify_schemas

ROWS = 500
COLUMNS = (
    ResultColumn("label", Kind.TEXT),
    ResultColumn("score", Kind.SCORE),
    ResultColumn("scores", Kind.SCORES),
    ResultColumn("truncated", Kind.FLAG),
    ResultColumn("error_code", Kind.TEXT),
)
METADATA = {"batchmill.model": "tickets@1", "batchmill.rows": "0-500"}
SCHEMA = pa.schema(
    [pa.field("text", pa.string(), metadata={"unit": "words"}), ("code", pa.dictionary(pa.int32(), pa.string()))],
    metadata={"origin": "crm"},
)


def source() -> ParquetTable:
    chance = random.Random(7)  # noqa: S311 - texts, no secrets
    texts = [f"ticket {chance.random()}" for _ in range(ROWS)]
    table = pa.table([pa.array(texts), pa.array(["a", "b", None, "c", "d"] * 100).dictionary_encode()], schema=SCHEMA)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=130)
    return ParquetTable(buffer, "in.parquet")


def results(rows: int = ROWS) -> dict[str, list[Any]]:
    bad = [row % 10 == 3 for row in range(rows)]
    return {
        "label": [None if wrong else "billing" for wrong in bad],
        "score": [None if wrong else round(row / rows, 4) for row, wrong in enumerate(bad)],
        "scores": [None if wrong else [{"label": "billing", "score": 0.5}] for wrong in bad],
        "truncated": [False] * rows,
        "error_code": ["empty_text" if wrong else None for wrong in bad],
    }


def form(inputs: pa.Schema = SCHEMA, **changes: object) -> PartSchema:
    return PartSchema(inputs, COLUMNS, **{"prefix": "", "metadata": METADATA, "row_group_rows": 200, **changes})


def test_a_part_holds_the_rows_of_its_span_and_what_was_said_of_them(tmp_path: Path) -> None:
    table, path = source(), tmp_path / "part.parquet"
    part = write_part(path, Span(table, 100, 400), results(300), form(), only=None)
    file = pq.ParquetFile(path, page_checksum_verification=True)
    read = file.read()
    assert part.rows == read.num_rows == 300
    assert part.size == path.stat().st_size
    assert read.select(["text", "code"]).equals(
        pa.Table.from_batches(table.batches(SCHEMA.names, 100, 400)).unify_dictionaries()
    )
    for name, values in results(300).items():
        assert read.column(name).to_pylist() == values
    assert [file.metadata.row_group(index).num_rows for index in range(2)] == [200, 100]
    chunk = file.metadata.row_group(0).column(0)
    assert chunk.compression == "ZSTD"
    assert chunk.is_stats_set
    assert file.schema_arrow.field("text").metadata[b"unit"] == b"words"
    expected = {b"origin": b"crm", b"batchmill.model": b"tickets@1", b"batchmill.rows": b"0-500"}
    assert file.schema_arrow.metadata == expected
    assert file.metadata.metadata.items() >= expected.items()
    assert file.metadata.created_by == f"parquet-cpp-arrow version {pa.__version__}"
    assert list(tmp_path.iterdir()) == [path]


def test_a_rejects_file_holds_the_rows_that_are_asked_for(tmp_path: Path) -> None:
    table, said = source(), results()
    rejected = [row for row, code in enumerate(said["error_code"]) if code]
    part = write_part(tmp_path / "rejects.parquet", Span(table, 0, ROWS), said, form(), only=rejected)
    read = pq.read_table(tmp_path / "rejects.parquet")
    texts = [text for batch in table.texts(["text"], 0, ROWS) for text in batch["text"]]
    assert part.rows == len(rejected) == 50
    assert read.column("text").to_pylist() == [texts[row] for row in rejected]
    assert set(read.column("error_code").to_pylist()) == {"empty_text"}


def test_a_rejects_file_may_name_rows_by_file_and_number_alone(tmp_path: Path) -> None:
    columns = (ResultColumn("file", Kind.TEXT), ResultColumn("row", Kind.COUNT))
    named = {"file": ["in.parquet"] * ROWS, "row": list(range(ROWS))}
    shape = PartSchema(pa.schema([]), columns, prefix="", metadata={}, compression="none")
    write_part(tmp_path / "rejects.parquet", Span(source(), 0, ROWS), named, shape, only=[3, 499])
    rows = pq.read_table(tmp_path / "rejects.parquet").to_pylist()
    assert rows == [{"file": "in.parquet", "row": 3}, {"file": "in.parquet", "row": 499}]


def test_a_part_without_rows_is_a_file_with_all_columns(tmp_path: Path) -> None:
    part = write_part(tmp_path / "part.parquet", Span(source(), 5, 5), results(0), form())
    assert part.rows == 0
    assert pq.read_schema(tmp_path / "part.parquet").names == [*SCHEMA.names, *(column.name for column in COLUMNS)]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    shas = set()
    for attempt in range(3):
        path = tmp_path / f"part-{attempt}.parquet"
        shas.add(write_part(path, Span(source(), 0, ROWS), results(), form()).sha256)
    assert len(shas) == 1
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_the_bytes_do_not_depend_on_how_the_rows_were_batched(tmp_path: Path) -> None:
    whole = pa.table({"text": [f"ticket {row * 7919 % 1000}" for row in range(3000)], "row": range(3000)})
    shas = set()
    for batch_rows in (1, 77, 500, 3000):
        with PartWriter(tmp_path / "part.parquet", whole.schema, {}, row_group_rows=1000) as writer:
            for batch in whole.to_batches(batch_rows):
                writer.write(batch)
        shas.add(writer.part.sha256)
    assert len(shas) == 1


def test_a_row_group_of_long_rows_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_BYTES", 100_000)
    batch = pa.record_batch({"text": ["x" * 1000] * 50})
    with PartWriter(tmp_path / "part.parquet", batch.schema, {}) as writer:
        for _ in range(5):
            writer.write(batch)
    metadata = pq.read_metadata(tmp_path / "part.parquet")
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [100, 100, 50]


class InterruptionError(Exception):
    pass


@pytest.mark.parametrize("batches_before", [0, 1, 5], ids=["at-once", "first-group", "later"])
def test_an_exception_mid_write_leaves_no_file_that_looks_whole_arrow_40502(
    tmp_path: Path, batches_before: int
) -> None:
    path, kept = tmp_path / "part.parquet", tmp_path / "kept"
    batch = pa.record_batch({"text": [f"ticket {row}" for row in range(100)]})

    def half_write() -> None:
        with PartWriter(path, batch.schema, {}, row_group_rows=100) as writer:
            kept.hardlink_to(next(tmp_path.glob("*.partial")))  # what a crash would have left
            for _ in range(batches_before):
                writer.write(batch)
            raise InterruptionError

    with pytest.raises(InterruptionError):
        half_write()
    gc.collect()  # pyarrow ends a file when its writer is collected, too
    assert list(tmp_path.iterdir()) == [kept]
    with kept.open("rb") as left, pytest.raises(UnreadableTable):
        ParquetTable(left, "kept")


def test_an_older_part_survives_a_failed_rewrite(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    write_part(path, Span(source(), 0, ROWS), results(), form())
    before = path.read_bytes()
    batch = pa.record_batch({"text": ["a"]})

    def fail() -> None:
        with PartWriter(path, batch.schema, {}):
            raise InterruptionError

    with pytest.raises(InterruptionError):
        fail()
    assert path.read_bytes() == before


def test_a_full_disk_is_the_oserror_that_it_is_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    class Full(io.FileIO):
        left = 3000

        def write(self, data: bytes) -> int:
            self.left -= len(data)
            if self.left < 0:
                raise OSError(28, "No space left on device")
            return super().write(data)

    def limited(path: Path, mode: str = "r") -> io.IOBase:
        return Full(path, "w") if mode == "wb" else opened(path, mode)

    monkeypatch.setattr(Path, "open", limited)
    with pytest.raises(OSError, match="No space left") as caught:
        write_part(tmp_path / "part.parquet", Span(source(), 0, ROWS), results(), form())
    assert caught.value.errno == 28
    del caught
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_reads_back_differently_is_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = parts._Sink.close  # noqa: SLF001 - between writing and verifying there is no other place

    def close_and_flip(sink: parts._Sink) -> None:
        close(sink)
        data = bytearray(sink.path.read_bytes())
        data[len(data) // 2] ^= 1
        sink.path.write_bytes(data)

    monkeypatch.setattr("worker.storage.parts._Sink.close", close_and_flip)
    with pytest.raises(BrokenPart, match="other bytes than were written"):
        write_part(tmp_path / "part.parquet", Span(source(), 0, ROWS), results(), form())
    assert not list(tmp_path.iterdir())


def test_a_part_that_lost_rows_in_writing_is_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, write_table = source(), pq.ParquetWriter.write_table
    monkeypatch.setattr(
        pq.ParquetWriter, "write_table", lambda writer, table, **options: write_table(writer, table[:-1], **options)
    )
    with pytest.raises(BrokenPart, match="500 rows were written, 497 read back"):
        write_part(tmp_path / "part.parquet", Span(table, 0, ROWS), results(), form())
    assert not list(tmp_path.iterdir())


def test_a_reading_error_mid_write_leaves_nothing(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"text": [f"ticket {row}" for row in range(ROWS)]}),
        buffer,
        compression="none",
        write_page_checksum=True,
    )
    data = bytearray(buffer.getvalue())
    data[data.rindex(b"ticket 400") + 8] ^= 1
    table = ParquetTable(io.BytesIO(bytes(data)), "in.parquet")
    with pytest.raises(UnreadableTable):
        write_part(tmp_path / "part.parquet", Span(table, 0, ROWS), results(), form(table.schema))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spoil", [{"label": []}, {"extra": [1] * ROWS}], ids=["short", "unknown"])
def test_results_that_do_not_fit_the_span_are_refused_before_anything_is_written(
    tmp_path: Path, spoil: dict[str, list[int]]
) -> None:
    with pytest.raises(ValueError, match=next(iter(spoil))):
        write_part(tmp_path / "part.parquet", Span(source(), 0, ROWS), {**results(), **spoil}, form())
    assert not list(tmp_path.iterdir())


def test_an_input_column_of_the_name_of_ours_is_an_error_that_names_the_way_out() -> None:
    files = [("a.parquet", SCHEMA), ("b.parquet", pa.schema([("text", pa.string()), ("score", pa.int32())]))]
    with pytest.raises(ColumnError, match=r"b\.parquet: column 'score': .*column_prefix"):
        check_names(files, COLUMNS, "")
    check_names(files, COLUMNS, "ml_")
    assert form(unify_schemas(files), prefix="ml_").schema.names[-1] == "ml_error_code"


def test_every_kind_of_column_survives_a_part_untouched(tmp_path: Path) -> None:
    kinds = pa.table(
        {
            "nested": pa.array([[{"a": [1, None]}], None, []], pa.list_(pa.struct([("a", pa.list_(pa.int16()))]))),
            "ns": pa.array([1, None, 3], pa.timestamp("ns", "UTC")),
            "seconds": pa.array([1, None, 3], pa.timestamp("s")),
            "money": pa.array([None, None, None], pa.decimal256(50, 3)),
            "large": pa.array(["x", None, "y"], pa.large_string()),
            "view": pa.array(["x", None, "y"], pa.string_view()),
            "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
            "uuid": pa.array([b"\x01" * 16, None, b"\x02" * 16], pa.uuid()),
            "none": pa.nulls(3),
            "half": pa.array([1.5, None, 2.5], pa.float16()),
            "time": pa.array([1, None, 3], pa.time64("ns")),
            "took": pa.array([1, None, 3], pa.duration("us")),
        }
    )
    unknown = pa.field("shape", pa.binary(), metadata={"ARROW:extension:name": "geo.shape"})
    kinds = kinds.append_column(unknown, pa.array([b"a", None, b"b"]))
    buffer = io.BytesIO()
    pq.write_table(kinds, buffer)
    table = ParquetTable(buffer, "in.parquet")
    write_part(tmp_path / "part.parquet", Span(table, 0, 3), results(3), form(table.schema))
    written = pq.read_table(tmp_path / "part.parquet").select(kinds.schema.names)
    before = pq.read_table(buffer)
    assert written.schema.remove_metadata().equals(before.schema.remove_metadata())
    assert written.replace_schema_metadata().equals(before.replace_schema_metadata())
    extension = written.schema.field("shape").metadata[b"ARROW:extension:name"]
    assert extension == b"geo.shape"


def test_files_with_different_schemas_make_parts_of_one_schema(tmp_path: Path) -> None:
    first = pa.table({"text": ["a"], "n": pa.array([1], pa.int32())})
    second = pa.table({"extra": ["e"], "n": pa.array([2**40], pa.int64()), "text": pa.array(["b"]).dictionary_encode()})
    tables = []
    for number, table in enumerate((first, second)):
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        tables.append(ParquetTable(buffer, f"in-{number}.parquet"))
    unified = unify_schemas([(table.name, table.schema) for table in tables])
    for number, table in enumerate(tables):
        write_part(tmp_path / f"{number}.parquet", Span(table, 0, 1), results(1), form(unified))
    read = pa.concat_tables([pq.read_table(tmp_path / f"{number}.parquet") for number in range(2)])
    assert read.select(["text", "n", "extra"]).to_pylist() == [
        {"text": "a", "n": 1, "extra": None},
        {"text": "b", "n": 2**40, "extra": "e"},
    ]


def test_json_lines_are_written_like_any_table(tmp_path: Path) -> None:
    table = JsonlTable(io.BytesIO(b'{"text": "a", "n": 1}\nbroken\n{"text": "b"}\n'), "in.jsonl")
    write_part(tmp_path / "part.parquet", Span(table, 0, 3), results(3), form(table.schema))
    assert pq.read_table(tmp_path / "part.parquet").select(["text", "n"]).to_pylist() == [
        {"text": "a", "n": "1"},
        {"text": None, "n": None},
        {"text": "b", "n": None},
    ]


@pytest.mark.parametrize("module", ["duckdb", "pandas", "polars"])
def test_other_readers_read_a_part(tmp_path: Path, module: str) -> None:
    reader = importlib.import_module(module)
    path = tmp_path / "part.parquet"
    write_part(path, Span(source(), 0, ROWS), results(), form())
    if module == "duckdb":
        labels = [row[0] for row in reader.sql(f"select label from read_parquet('{path}')").fetchall()]  # noqa: S608
    elif module == "polars":
        labels = reader.read_parquet(path)["label"].to_list()
    else:
        labels = [value if isinstance(value, str) else None for value in reader.read_parquet(path)["label"]]
    assert labels == results()["label"]
