"""The exception tree of the worker.

    Exception
    ├── MessageError            (schemas.errors) the message as a whole is wrong: permanent, its task fails
    └── BatchmillError
        ├── ConfigError         the worker refuses to start; the text says how to mend it
        │   └── ModelError      a model directory is missing, ambiguous or broken
        ├── BatchTimeout        the model did not answer in time: isolated like any failure of a batch
        ├── ItemFailed          one item's outcome: permanent, its neighbours are untouched
        ├── Draining            the worker is stopping: transient, the message goes back to the queue
        ├── Cancelled           nobody wants this job any more: it ends as revoked
        ├── StorageError        (worker.storage.errors) what an object store could not do
        ├── TableError          an input table cannot be used as it is: permanent; names the file
        │   ├── UnreadableTable damaged, or not the format that it should be
        │   ├── OversizedTable  it claims more than the limits allow
        │   └── ColumnError     a column is missing, of the wrong type, or in the way; names the column
        ├── BrokenPart          a part is not what was written, it is gone: transient
        └── NotBatched          a batched task was run by a pool that cannot batch

Foreign exceptions are turned into one of these where they enter: the session (onnxruntime), the repository (files),
the pipeline (tokenizers, pydantic). No text here quotes what a ticket said.
"""

from typing import Self

from schemas.errors import ErrorCode


class BatchmillError(Exception):
    """Base of everything that the worker raises on purpose."""


class ConfigError(BatchmillError):
    """The worker cannot start like this; the text names the setting and the remedy."""


class ModelError(ConfigError):
    """A model directory is missing, ambiguous or broken; the text names the file and the remedy."""


class ItemFailed(BatchmillError):  # noqa: N818 - an outcome as much as an error; `ItemError` is its wire form
    """One item of a job failed for good.

    Args:
        code: what went wrong, from the contract's enum.
        message: one sentence for the producer; never quotes the input.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def bare(self) -> Self:
        """Return the same without the frames that it passed: an outcome is kept, and they hold what failed."""
        return type(self)(self.code, self.message)

    def as_dict(self) -> dict[str, str]:
        """Return the wire form, as `schemas.errors.ItemError` describes it."""
        return {"code": self.code.value, "message": self.message}


class BatchTimeout(BatchmillError):  # noqa: N818 - reads as what happened
    """The model did not answer within `limit_s` and was stopped."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"no answer within {limit_s:g} s")
        self.limit_s = limit_s


class Draining(BatchmillError):  # noqa: N818 - names a state of the worker
    """The worker stops before it could run this job; another worker will."""


class Cancelled(BatchmillError):  # noqa: N818 - names what happened
    """The job was called off while it ran."""


class NotBatched(BatchmillError):  # noqa: N818 - names what did not happen
    """A batched task was called outside the batch pool."""


class TableError(BatchmillError):
    """An input table cannot be used as it is.

    Args:
        name: the file.
        reason: what is wrong and, where it can be said, the remedy; never quotes a value.

    Attributes:
        code: what it is in the contract.
    """

    code = ErrorCode.UNREADABLE_INPUT

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class UnreadableTable(TableError):  # noqa: N818 - names what the file is
    """A file is damaged, or not of the format that it should be."""


class OversizedTable(TableError):  # noqa: N818 - names what the file is
    """A file claims more than the limits allow."""


class ColumnError(TableError):
    """A column is missing, of the wrong type, or in the way of another."""

    def __init__(self, name: str, column: str, reason: str, code: ErrorCode = ErrorCode.SCHEMA_MISMATCH) -> None:
        super().__init__(name, f"column {column!r}: {reason}")
        self.column = column
        self.code = code


class BrokenPart(BatchmillError):  # noqa: N818 - names what the file is
    """A part that was just written does not read back as it was written; it has been removed."""
