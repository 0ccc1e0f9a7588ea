import pyarrow as pa
import pytest

from worker.errors import ColumnError
from worker.storage.unify import column_types, conform, schema_from_bytes, schema_to_bytes, unify_schemas

STRING_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def unified(*kinds: pa.DataType) -> pa.Schema:
    return unify_schemas([(f"{index}.parquet", pa.schema([("x", kind)])) for index, kind in enumerate(kinds)])


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((pa.int32(), pa.int64()), pa.int64()),
        ((pa.int64(), pa.int32(), pa.float64()), pa.float64()),
        ((pa.null(), pa.string()), pa.string()),
        ((pa.string(), pa.null()), pa.string()),
        ((pa.string(), pa.large_string()), pa.large_string()),
        ((pa.string_view(), pa.string()), pa.string()),
        ((STRING_DICTIONARY, pa.string()), pa.string()),
        ((pa.string(), STRING_DICTIONARY, pa.large_string()), pa.large_string()),
        ((STRING_DICTIONARY, STRING_DICTIONARY), STRING_DICTIONARY),
        ((pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")), pa.timestamp("ns", "UTC")),
        ((pa.decimal128(10, 2), pa.decimal128(12, 3)), pa.decimal128(12, 3)),
        ((pa.list_(pa.int32()), pa.list_(pa.int64())), pa.list_(pa.int64())),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_types_are_widened_to_hold_every_file(kinds: tuple[pa.DataType, ...], expected: pa.DataType) -> None:
    assert unified(*kinds).field("x").type == expected


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.int64(), pa.string()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.struct([("a", pa.int32())]), pa.string()),
    ],
    ids=lambda kinds: " ".join(map(str, kinds)),
)
def test_types_that_nothing_holds_are_an_error_of_file_and_column(kinds: tuple[pa.DataType, ...]) -> None:
    with pytest.raises(ColumnError, match=r"1\.parquet: column 'x': it holds .* here and .* in the files before"):
        unified(*kinds)


def test_a_schema_can_be_pinned_as_bytes() -> None:
    field = pa.field("x", pa.list_(pa.timestamp("ns", "UTC")), metadata={"unit": "s"})
    schema = pa.schema([field, ("y", pa.uuid())], metadata={"origin": "crm"})
    assert schema_from_bytes(schema_to_bytes(schema)).equals(schema, check_metadata=True)
    assert column_types(schema)[0] == ("x", "list<item: timestamp[ns, tz=UTC]>")


def test_columns_keep_the_order_of_their_first_file_and_its_metadata() -> None:
    first = pa.schema([pa.field("b", pa.int32(), metadata={"k": "1"}), ("a", pa.int32())], metadata={"origin": "x"})
    second = pa.schema([("c", pa.int32()), ("a", pa.int32()), pa.field("b", pa.int32(), metadata={"k": "2"})])
    schema = unify_schemas([("1", first), ("2", second)])
    assert schema.names == ["b", "a", "c"]
    assert schema.metadata == {b"origin": b"x"}
    assert schema.field("b").metadata == {b"k": b"1"}


def test_a_required_column_that_one_file_lacks_may_be_null() -> None:
    required = pa.schema([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32(), nullable=False)])
    schema = unify_schemas([("1", required), ("2", pa.schema([pa.field("y", pa.int32(), nullable=False)]))])
    assert schema.field("x").nullable
    assert not schema.field("y").nullable


def test_a_batch_is_brought_into_order_type_and_completeness() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.timestamp("ns")), ("d", STRING_DICTIONARY)])
    batch = pa.record_batch({"b": pa.array(["x"]).dictionary_encode(), "a": pa.array([1], pa.int32())})
    found = conform("in.parquet", batch, schema)
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"a": 1, "b": "x", "c": None, "d": None}]


def test_a_struct_gains_the_fields_of_the_other_file() -> None:
    narrow, wide = pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())])
    schema = unified(narrow, wide)
    found = conform("0.parquet", pa.record_batch({"x": pa.array([{"a": 1}], narrow)}), schema)
    assert found.to_pylist() == [{"x": {"a": 1, "b": None}}]


def test_a_value_beyond_the_unified_type_is_an_error_not_another_value() -> None:
    batch = pa.record_batch({"x": pa.array([2**63], pa.uint64())})
    with pytest.raises(ColumnError, match=r"0\.parquet: column 'x': a value of uint64 does not fit int64"):
        conform("0.parquet", batch, unified(pa.uint64(), pa.int64()))
