"""How strictly the contract's models read: what is unknown, of a wrong type or contradictory is an error."""

from typing import Final, LiteralString

from pydantic import ConfigDict
from pydantic_core import PydanticCustomError

STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def contradiction(kind: LiteralString, text: str) -> PydanticCustomError:
    """Return what a validator raises where fields that are right by themselves do not fit together."""
    return PydanticCustomError(kind, "{text}", {"text": text})
