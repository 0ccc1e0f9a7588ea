"""One schema for files that differ, and batches brought into it.

Columns are matched by name. A column that a file lacks is null there; types that differ are widened as Arrow's
permissive rules do (int32 with int64, string with large_string, null with anything), and a view or a dictionary is
read as its values where another file has those plain. It reads nothing, and it never narrows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from worker.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Iterable


def unify_schemas(files: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return the schema that holds every row of every file.

    Columns come in the order of their first file; so does the metadata of fields and schema.

    Args:
        files: each file's name and schema, in input order; of none, the schema has no columns.

    Raises:
        ColumnError: a column's types cannot be held by one; names the file that does not fit those before it.
    """
    files = list(files)
    fields: dict[str, pa.Field] = {}
    for name, schema in files:
        for field in schema:
            known = fields.get(field.name)
            fields[field.name] = field if known is None else _merged(name, known, field)
    everywhere = set(fields).intersection(*(schema.names for _, schema in files))
    unified = [field if field.name in everywhere else field.with_nullable(nullable=True) for field in fields.values()]
    return pa.schema(unified, files[0][1].metadata if files else None)


def only_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the columns of these names that the schema has, in this order, without its metadata."""
    return pa.schema([schema.field(name) for name in names if name in schema.names])


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Return the schema as an Arrow IPC message, for a plan to pin."""
    return bytes(schema.serialize())


def schema_from_bytes(data: bytes) -> pa.Schema:
    """Return the schema that `schema_to_bytes` took."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def column_types(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the columns' names and their types as Arrow spells them."""
    return [(field.name, str(field.type)) for field in schema]


def conform(name: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns, order and types of a schema that `unify_schemas` made.

    Raises:
        ColumnError: a value does not fit the unified type: a uint64 beyond int64, say.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [_conformed(name, batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _merged(name: str, known: pa.Field, field: pa.Field) -> pa.Field:
    if known.type.equals(field.type):
        return known.with_nullable(known.nullable or field.nullable)
    for left, right in ((known.type, field.type), (_plain(known.type), _plain(field.type))):
        try:
            kind = pa.unify_schemas(
                [pa.schema([(known.name, left)]), pa.schema([(known.name, right)])], promote_options="permissive"
            ).field(0)
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            continue
        return known.with_type(kind.type).with_nullable(known.nullable or field.nullable)
    text = f"it holds {field.type} here and {known.type} in the files before; cast one of them"
    raise ColumnError(name, field.name, text)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _conformed(name: str, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        text = f"a value of {column.type} does not fit {field.type}, which the files have in common"
        raise ColumnError(name, field.name, text) from error
