"""The files that a run reads: each once, as they were when they were listed, or a clear word about which is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk_plan import InputFile, LineScan
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.inputs import Described, describe, list_inputs, open_table, pinned
from tasks.bulk.layout import normalised
from tasks.bulk.stores import Stores
from worker.errors import ColumnError, UnreadableTable
from worker.storage.errors import BadLocation, Changed
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

STORE = LocalStore()
CSV = b'id,text\n1,"first\nticket"\n2,second\n'
JSONL = b'{"id": 1, "text": "first"}\n\n{"id": 2, "text": "second", "tag": "new"}\n'


def parquet(path: Path, rows: int = 3, row_group_size: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": range(rows), "text": [f"ticket {row}" for row in range(rows)]})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def written(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def listed(root: Path, *patterns: str, output: str = "/elsewhere") -> list[str]:
    infos = list_inputs(Stores(), [f"{root}/{pattern}" for pattern in patterns], output)
    return [info.uri.removeprefix(f"{root}/") for info in infos]


def described(path: Path, **columns: list[str]) -> Described:
    return describe(STORE, pinned(STORE.info(str(path)), "/elsewhere"), **columns)


def test_a_file_that_several_patterns_match_is_there_once(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.csv", "deep/c.NDJSON", "deep/d.pq", "deep/e.jsonl"):
        written(tmp_path / name)
    everything = ["a.parquet", "b.csv", "deep/c.NDJSON", "deep/d.pq", "deep/e.jsonl"]
    assert listed(tmp_path, "**/*", "", "*.parquet", "a.parquet") == everything
    infos = list_inputs(Stores(), [f"file://{tmp_path}/a.parquet", f"{tmp_path}/./a.parquet"], "/elsewhere")
    assert infos == [STORE.info(str(tmp_path / "a.parquet"))]


def test_a_pattern_that_matches_nothing_is_named_whatever_the_others_match(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet")
    for missing in ("*.csv", "b.parquet", "deep/"):
        with pytest.raises(MessageError, match=f"{tmp_path}/") as refused:
            listed(tmp_path, "*.parquet", missing)
        assert refused.value.code is ErrorCode.NO_INPUTS
        assert missing in str(refused.value)


def test_what_a_run_left_in_its_output_is_not_read_again(tmp_path: Path) -> None:
    for name in ("in.parquet", "out/mine.parquet", "out/manifest.json", "out/_SUCCESS", "out/_batchmill/plan.json"):
        written(tmp_path / name)
    written(tmp_path / "out/dt=1/part-000000-1f0c9a52-b7d2e4f1.parquet")
    written(tmp_path / "out/_rejects/part-000000-1f0c9a52-b7d2e4f1.rejects")
    assert listed(tmp_path, "**", output=f"{tmp_path}/out/") == ["in.parquet", "out/mine.parquet"]
    with pytest.raises(MessageError, match="no file matches"):
        listed(tmp_path, "out/dt=*/*", output=f"file://{tmp_path}/out")


def test_a_file_of_no_known_ending_is_named_with_the_endings(tmp_path: Path) -> None:
    written(tmp_path / "a.csv.gz")
    with pytest.raises(MessageError, match=r"a\.csv\.gz: .*\.parquet, \.pq, \.csv, \.jsonl, \.ndjson") as refused:
        listed(tmp_path, "*")
    assert refused.value.code is ErrorCode.UNREADABLE_INPUT


def test_a_kind_of_address_that_no_store_reads_is_refused() -> None:
    with pytest.raises(BadLocation, match="gs:// is not supported"):
        list_inputs(Stores(), ["gs://lake/*.parquet"], "/elsewhere")


def test_a_file_is_pinned_with_the_partition_that_its_parts_keep(tmp_path: Path) -> None:
    info = STORE.info(str(parquet(tmp_path / "dt=2026-01-01" / "hour=7" / "a.parquet")))
    file = pinned(info, str(tmp_path / "out"))
    assert (file.uri, file.size_bytes, file.etag, file.version) == (info.uri, info.size_bytes, info.etag, None)
    assert file.folder == "dt=2026-01-01/hour=7"
    assert pinned(info, normalised(f"{tmp_path}/dt=2026-01-01")).folder == "hour=7"


def test_a_name_that_no_message_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MessageError, match=r"\\udcff\.csv.*rename") as refused:
        pinned(STORE.info(str(written(tmp_path / "\udcff.csv"))), "/elsewhere")
    assert refused.value.code is ErrorCode.UNREADABLE_INPUT


def test_a_parquet_file_is_described_by_its_footer(tmp_path: Path) -> None:
    found = described(parquet(tmp_path / "a.parquet"), texts=["text"], others=["id"])
    assert (found.file.rows, found.row_groups, found.file.scan) == (3, [2, 1], None)
    assert found.schema.names == ["id", "text"]


@pytest.mark.parametrize(
    ("name", "content", "columns"), [("a.csv", CSV, ["id", "text"]), ("a.jsonl", JSONL, ["id", "text", "tag"])]
)
def test_a_text_file_is_described_by_one_pass_that_the_plan_pins(
    tmp_path: Path, name: str, content: bytes, columns: list[str]
) -> None:
    found = described(written(tmp_path / name, content), texts=["text"])
    assert (found.file.rows, found.row_groups) == (2, [])
    assert found.file.scan == LineScan(columns=columns, marks=[8 if name == "a.csv" else 0])
    with open_table(STORE, InputFile.model_validate_json(found.file.model_dump_json())) as table:
        assert table.schema.equals(found.schema)
        assert [batch["text"] for batch in table.texts(["text"], 1, 2)] == [["second"]]


def test_a_column_that_is_missing_or_holds_no_text_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match=r"a\.parquet: column 'id'.*int64") as refused:
        described(path, texts=["id"])
    assert refused.value.code is ErrorCode.SCHEMA_MISMATCH
    with pytest.raises(ColumnError, match=r"a\.parquet: column 'ticket'.*id, text") as refused:
        described(path, texts=["text"], others=["ticket"])
    assert refused.value.code is ErrorCode.UNKNOWN_COLUMN


def test_a_file_of_another_format_than_its_ending_says_is_that_files_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTable, match=r"a\.parquet"):
        described(written(tmp_path / "a.parquet", CSV * 10))


def test_an_empty_file_without_a_header_lacks_no_column(tmp_path: Path) -> None:
    assert described(written(tmp_path / "a.jsonl", b""), texts=["text"], others=["id"]).file.rows == 0


def test_a_file_that_changed_or_went_away_since_it_was_pinned_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    file = described(path).file
    parquet(path, rows=4)
    with pytest.raises(Changed, match=str(path)), open_table(STORE, file):
        pass
    path.unlink()
    with pytest.raises(Changed, match=str(path)), open_table(STORE, file):
        pass


def test_a_table_is_closed_with_its_block(tmp_path: Path) -> None:
    with open_table(STORE, described(parquet(tmp_path / "a.parquet")).file) as table:
        assert sum(len(batch["text"]) for batch in table.texts(["text"], 0, 3)) == 3
    with pytest.raises(ValueError, match="closed"):
        next(table.texts(["text"], 0, 3))


def test_there_is_one_store_of_each_kind() -> None:
    made: list[str] = []

    def make(uri: str) -> LocalStore:
        made.append(uri)
        return LocalStore()

    stores = Stores(make)
    assert stores.of("/data/a") is stores.of("file:///data/b")
    assert stores.of("s3://lake/a") is stores.of("S3://lake/b")
    assert made == ["/data/a", "s3://lake/a"]
