"""A column of files: bytes as they are, or text that stands for them. Read in small pieces, for a row may be large.

It does not know what is in the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.storage.labelling import Span
    from worker.storage.tables import Text

Content: TypeAlias = bytes | str | ItemFailed | None

CONTENT_ROWS = 4  # at a time


def contents(span: Span, column: str) -> Iterator[Content]:
    """Yield what a column holds: `bytes` of a binary one, text of another, None for null, or the row's own error.

    Blocks on the file; holds what `worker.storage.parquet` states, of `CONTENT_ROWS` rows.

    Raises:
        ColumnError: the column is missing, or holds neither.
        UnreadableTable: the content is damaged.
    """
    kind = span.table.schema.field(column).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_binary(plain) or pa.types.is_large_binary(plain) or pa.types.is_binary_view(plain)):
        yield from texts(span, column, CONTENT_ROWS)
        return
    for batch in span.table.batches([column], span.start, span.stop, CONTENT_ROWS):
        yield from batch.column(0).to_pylist()


def texts(span: Span, column: str, batch_rows: int) -> Iterator[Text]:
    """Yield the texts of a column, as `Table.texts` says."""
    for batch in span.table.texts([column], span.start, span.stop, batch_rows):
        yield from batch[column]
