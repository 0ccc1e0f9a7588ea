import io
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.errors import ErrorCode
from worker.errors import ColumnError, ItemFailed, OversizedTable, TableError, UnreadableTable
from worker.storage.footer import FooterLimits, RowGroup
from worker.storage.parquet import BATCH_BYTES, ParquetTable
from worker.storage.tables import NOT_UTF8, Texts

ROWS = 1000
TEXTS = [None if row % 7 == 0 else f"ticket {row % 50}" for row in range(ROWS)]


def stored(table: pa.Table, **options: object) -> io.BytesIO:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **{"row_group_size": 300, "write_page_checksum": True, **options})
    return buffer


def opened(table: pa.Table, **options: object) -> ParquetTable:
    return ParquetTable(stored(table, **options), "in.parquet")


def texts_of(table: ParquetTable, columns: Sequence[str], start: int, stop: int, batch_rows: int = 64) -> Texts:
    found: Texts = {column: [] for column in columns}
    for batch in table.texts(columns, start, stop, batch_rows):
        assert len({len(texts) for texts in batch.values()}) == 1
        assert len(batch[columns[0]]) <= batch_rows
        for column, texts in batch.items():
            found[column] += texts
    return found


def test_a_footer_tells_rows_row_groups_and_schema_without_reading_pages() -> None:
    class Counting(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.count += len(data)
            return data

    file = Counting(stored(pa.table({"text": [f"{row} " * 200 for row in range(ROWS)]}), compression="none").getvalue())
    table = ParquetTable(file, "in.parquet")
    assert table.rows == ROWS
    assert [group.rows for group in table.footer.row_groups] == [300, 300, 300, 100]
    assert table.footer.row_groups[0].uncompressed_bytes > 100_000
    assert table.schema.names == ["text"]
    assert file.count < 75_000 < len(file.getvalue())


@pytest.mark.parametrize(
    ("start", "stop"), [(0, ROWS), (0, 1), (299, 301), (300, 600), (150, 950), (999, 1000), (5, 5)]
)
def test_a_range_gives_its_rows_in_order_wherever_it_cuts_the_row_groups(start: int, stop: int) -> None:
    table = opened(pa.table({"other": range(ROWS), "text": TEXTS}))
    assert texts_of(table, ["text"], start, stop)["text"] == TEXTS[start:stop]
    whole = [batch.column("other").to_pylist() for batch in table.batches(["other"], start, stop, 64)]
    assert [value for batch in whole for value in batch] == list(range(start, stop))


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, ROWS + 1)])
def test_a_range_outside_of_the_file_is_refused_at_once(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match=r"in\.parquet has 1000 rows"):
        opened(pa.table({"text": TEXTS})).texts(["text"], start, stop)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("use_dictionary", [True, False], ids=["encoded", "plain"])
def test_every_arrow_type_that_holds_text_is_read(kind: pa.DataType, *, use_dictionary: bool) -> None:
    values = [value.encode() if value is not None and "binary" in str(kind) else value for value in TEXTS]
    column = pa.array(values).dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else pa.array(values, kind)
    table = opened(pa.table({"text": column}), use_dictionary=use_dictionary)
    assert texts_of(table, ["text"], 10, 900)["text"] == TEXTS[10:900]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("data_page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", None])
def test_every_way_of_storing_text_is_read(compression: str, data_page_version: str, encoding: str | None) -> None:
    how = {"use_dictionary": encoding is None, "column_encoding": encoding and {"text": encoding}}
    table = opened(pa.table({"text": TEXTS}), compression=compression, data_page_version=data_page_version, **how)
    assert texts_of(table, ["text"], 10, 900)["text"] == TEXTS[10:900]


def test_a_null_typed_column_is_null_in_every_row() -> None:
    assert texts_of(opened(pa.table({"text": pa.nulls(ROWS)})), ["text"], 0, ROWS)["text"] == [None] * ROWS


@pytest.mark.parametrize("use_dictionary", [True, False], ids=["encoded", "plain"])
@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.string_view()], ids=str
)
def test_bytes_that_are_not_utf8_are_the_error_of_their_row_alone(kind: pa.DataType, *, use_dictionary: bool) -> None:
    raw = pa.array([b"fine", b"caf\xe9", None, "grün".encode()], pa.binary())
    buffer = stored(pa.table({"text": raw}), use_dictionary=use_dictionary, store_schema=False)
    if "string" in str(kind):  # Parquet's strings are not checked as they are written
        column = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
        column = column.cast(kind) if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else column
        buffer = stored(pa.table({"text": column}), use_dictionary=use_dictionary)
    texts = texts_of(ParquetTable(buffer, "in.parquet"), ["text"], 0, 4)["text"]
    assert texts == ["fine", NOT_UTF8, None, "grün"]
    assert isinstance(texts[1], ItemFailed)
    assert texts[1].code is ErrorCode.INVALID_UNICODE


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(3)),
        pa.array([["a"]] * 3),
        pa.array([{"text": "a"}] * 3),
        pa.array([b"ab"] * 3, pa.binary(2)),
        pa.array([1, 2, 3]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_holds_no_text_is_an_error_of_file_and_column(column: pa.Array) -> None:
    with pytest.raises(ColumnError, match=r"in\.parquet: column 'text': it holds .* not text"):
        opened(pa.table({"text": column})).texts(["text"], 0, 3)


def test_a_missing_column_names_those_that_are_there() -> None:
    with pytest.raises(ColumnError, match=r"in\.parquet: column 'body': .* the columns are id, text"):
        opened(pa.table({"id": [1], "text": ["a"]})).texts(["body"], 0, 1)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ColumnError, match="two columns have this name"):
        opened(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]))


def test_a_name_with_a_dot_is_not_taken_for_a_nested_field() -> None:
    whole = pa.table({"a": pa.array([{"b": "1"}, {"b": "2"}]), "a.b": ["x", "y"], "a.b.c": ["p", "q"]})
    table = opened(whole)
    assert texts_of(table, ["a.b"], 0, 2) == {"a.b": ["x", "y"]}
    assert pa.Table.from_batches(table.batches(whole.schema.names, 0, 2)).equals(whole)


def test_files_without_rows_or_row_groups_give_nothing() -> None:
    schema = pa.schema([("text", pa.string())])
    no_groups = io.BytesIO()
    pq.ParquetWriter(no_groups, schema).close()
    empty_group = stored(schema.empty_table())
    for buffer in (no_groups, empty_group):
        table = ParquetTable(buffer, "in.parquet")
        assert table.rows == 0
        assert list(table.texts(["text"], 0, 0)) == list(table.batches(["text"], 0, 0)) == []


def test_a_row_group_without_rows_is_passed_over() -> None:
    buffer = io.BytesIO()
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(buffer, schema) as writer:
        for texts in (["a", "b"], [], ["c"]):
            writer.write_table(pa.table({"text": texts}, schema))
    table = ParquetTable(buffer, "in.parquet")
    assert [group.rows for group in table.footer.row_groups] == [2, 0, 1]
    assert isinstance(table.footer.row_groups[1], RowGroup)
    assert texts_of(table, ["text"], 1, 3) == {"text": ["b", "c"]}


def test_a_text_that_a_million_rows_share_is_decoded_once() -> None:
    shared = "x" * 100_000
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array([shared]))
    table = opened(pa.table({"text": column}), row_group_size=20_000, store_schema=False)
    assert table.schema.field("text").type == pa.string()
    before = pa.total_allocated_bytes()
    for batch in table.texts(["text"], 0, 20_000, 5000):
        assert len({id(text) for text in batch["text"]}) == 1
        assert pa.total_allocated_bytes() - before < 8 << 20
    rows = 0
    for whole in table.batches(["text"], 0, 20_000, 5000):
        assert whole.schema.field("text").type == pa.string()
        assert whole.nbytes <= BATCH_BYTES * 1.01
        assert pa.total_allocated_bytes() - before < 3 * BATCH_BYTES
        rows += whole.num_rows
    assert rows == 20_000


def _peak_bytes(table: ParquetTable, read: Callable[[ParquetTable], Iterator[object]]) -> tuple[int, int]:
    before = pa.total_allocated_bytes()
    peaks = [pa.total_allocated_bytes() - before for _ in read(table)]
    third = len(peaks) // 3
    return max(peaks[:third]), max(peaks[-third:])


@pytest.mark.parametrize("use_dictionary", [True, False], ids=["encoded", "plain"])
def test_memory_stays_flat_while_a_big_file_streams_arrow_39808(*, use_dictionary: bool) -> None:
    peaks: dict[int, list[int]] = {}
    for rows in (60_000, 240_000):
        texts = [f"{row:08} " * 60 for row in range(rows)]
        table = pa.table({"text": texts, "other": texts})
        buffer = stored(table, row_group_size=rows // 2, compression="none", use_dictionary=use_dictionary)
        del table, texts
        opened_table = ParquetTable(buffer, "in.parquet", read_buffer_bytes=2 << 20)
        uncompressed = sum(group.uncompressed_bytes for group in opened_table.footer.row_groups)
        for read in (
            lambda table, rows=rows: table.texts(["text"], 0, rows),
            lambda table, rows=rows: table.batches(["text", "other"], 0, rows),
        ):
            first, last = _peak_bytes(opened_table, read)
            assert last <= first * 1.25
            peaks.setdefault(rows, []).append(last)
    assert uncompressed > 140 << 20
    assert max(peaks[240_000]) < 16 << 20
    assert max(peaks[240_000]) <= max(peaks[60_000]) * 1.1


def test_a_flipped_bit_in_a_page_is_found() -> None:
    buffer = stored(pa.table({"text": [f"ticket {row}" for row in range(ROWS)]}), compression="none")
    data = bytearray(buffer.getvalue())
    data[data.index(b"ticket 17") + 3] ^= 1
    table = ParquetTable(io.BytesIO(bytes(data)), "in.parquet")
    with pytest.raises(UnreadableTable, match=r"in\.parquet: .*(checksum|CRC)"):
        list(table.texts(["text"], 0, ROWS))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda _data: b"", "too few"),
        (lambda _data: b"PAR1PAR1", "too few"),
        (lambda data: data[:-1], "cut short"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data[:-4] + b"PARE", "encrypted"),
        (lambda data: data[:-8] + struct.pack("<I", 2**31) + b"PAR1", "its footer claims 2147483648 bytes"),
        (lambda data: data[:-200] + bytes(192) + data[-8:], ""),
        (lambda data: b"PAR1" + data[-600:], ""),
        (lambda _data: b'{"text": "a"}\n' * 20, "another format"),
    ],
    ids=["empty", "magic", "cut", "half", "encrypted", "length", "zeros", "data-gone", "jsonl"],
)
def test_a_broken_file_is_refused_by_name_and_reason(spoil: Callable[[bytes], bytes], reason: str) -> None:
    data = stored(pa.table({"text": TEXTS, "other": range(ROWS)})).getvalue()
    with pytest.raises(UnreadableTable, match=rf"in\.parquet: .*{reason}"):
        ParquetTable(io.BytesIO(spoil(data)), "in.parquet")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"footer_bytes": 100}, "its footer has"),
        ({"rows": 999}, "claims 1000 rows"),
        ({"row_groups": 3}, "claims 4 row groups"),
        ({"columns": 1}, "claims 2 columns"),
        ({"chunk_bytes": 100}, "column text claims"),
        ({"chunk_expansion": 1, "expansion_free_bytes": 100}, "claims to grow"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_footer_that_claims_too_much_is_refused_before_a_page_is_read(limits: dict[str, int], reason: str) -> None:
    buffer = stored(pa.table({"text": ["a" * 100] * ROWS, "other": range(ROWS)}), use_dictionary=False)
    with pytest.raises(OversizedTable, match=rf"in\.parquet: .*{reason}"):
        ParquetTable(buffer, "in.parquet", replace(FooterLimits(), **limits))


def _mutilated(chance: random.Random, data: bytes) -> bytes:
    mutant = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        begin = len(data) - 2500 if chance.random() < 0.7 else 0
        mutant[chance.randrange(max(begin, 0), len(data))] = chance.randrange(256)
    return bytes(mutant)


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"compression": "none", "write_page_checksum": False}])
def test_a_mutilated_file_is_an_error_or_a_table_of_its_rows_but_never_a_crash(options: dict[str, Any]) -> None:
    chance = random.Random(40)  # noqa: S311 - not for secrets
    columns = {"text": TEXTS, "list": [[row, None] for row in range(ROWS)], "code": pa.array(TEXTS).dictionary_encode()}
    data = stored(pa.table(columns), **options).getvalue()
    refused = 0
    for _ in range(1500):
        try:
            table = ParquetTable(io.BytesIO(_mutilated(chance, data)), "in.parquet")
            rows = sum(batch.num_rows for batch in table.batches(table.schema.names, 0, table.rows))
            if "text" in table.schema.names:
                texts_of(table, ["text"], 0, table.rows)
            assert rows == table.rows
        except TableError:
            refused += 1
    assert refused > 500


def test_a_footer_that_makes_arrow_end_the_process_is_an_error() -> None:
    data = stored(pa.table({"text": TEXTS})).getvalue()
    (length,) = struct.unpack("<I", data[-8:-4])
    for at in range(len(data) - 8 - length, len(data) - 8):
        mutant = bytearray(data)
        mutant[at] ^= 0x10
        with suppress(TableError):
            ParquetTable(io.BytesIO(bytes(mutant)), "in.parquet")


def test_a_few_bytes_that_claim_millions_of_rows_are_refused() -> None:
    buffer = stored(pa.table({"text": pa.nulls(2_000_000, pa.string())}), row_group_size=2_000_000)
    assert ParquetTable(buffer, "in.parquet").rows == 2_000_000
    with pytest.raises(OversizedTable, match="claims 2000000 rows in"):
        ParquetTable(buffer, "in.parquet", FooterLimits(rows_per_byte=100))


def test_what_the_callers_file_raises_comes_through_unchanged() -> None:
    class SlowDownError(OSError):
        pass

    class Failing(io.BytesIO):
        fails = False

        def read(self, size: int | None = -1) -> bytes:
            if self.fails:
                raise SlowDownError("later")
            return super().read(size)

    file = Failing(stored(pa.table({"text": TEXTS})).getvalue())
    table = ParquetTable(file, "in.parquet")
    file.fails = True
    with pytest.raises(SlowDownError):
        list(table.texts(["text"], 0, ROWS))
    file.fails = False
    assert texts_of(table, ["text"], 0, ROWS)["text"] == TEXTS
    file.truncate(100)
    with pytest.raises(UnreadableTable):  # the failure before is no longer the reason
        list(table.texts(["text"], 0, ROWS))


def test_other_columns_are_passed_whole_with_their_types_and_metadata() -> None:
    table = pa.table(
        [
            pa.array(["a", None]),
            pa.array([[1, None], None], pa.list_(pa.int32())),
            pa.array([{"a": [{"b": 1}]}, None]),
            pa.array([1, None], pa.timestamp("ns")),
            pa.array([1, None], pa.timestamp("us", "Europe/Berlin")),
            pa.array([Decimal("1.50"), None], pa.decimal128(12, 2)),
            pa.array(["x", None]).dictionary_encode(),
            pa.array([b"\x01" * 16, None], pa.uuid()),
            pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            pa.array([1, None], pa.uint64()),
            pa.nulls(2),
        ],
        schema=pa.schema(
            [
                pa.field("text", pa.string(), metadata={"unit": "words"}),
                ("list", pa.list_(pa.int32())),
                ("deep", pa.struct([("a", pa.list_(pa.struct([("b", pa.int64())])))])),
                ("ns", pa.timestamp("ns")),
                ("tz", pa.timestamp("us", "Europe/Berlin")),
                ("money", pa.decimal128(12, 2)),
                ("code", pa.dictionary(pa.int32(), pa.string())),
                ("uuid", pa.uuid()),
                ("map", pa.map_(pa.string(), pa.int64())),
                ("big", pa.uint64()),
                ("none", pa.null()),
            ],
            metadata={"origin": "crm"},
        ),
    )
    source = opened(table)
    assert pa.Table.from_batches(source.batches(source.schema.names, 0, 2)).equals(table)
    assert source.schema.metadata == {b"origin": b"crm"}
    assert source.schema.field("text").metadata[b"unit"] == b"words"
