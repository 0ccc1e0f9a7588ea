"""Reads the numbers of a Parquet footer without believing any of them: Thrift's compact protocol, in bounds.

pyarrow ends the process, by `std::terminate`, where a chunk's statistics contradict the schema and somebody asks for
that chunk; a damaged file must be an error instead. So what the gates look at is decoded here. Written after
the Thrift compact protocol specification; only wanted fields are kept, and no count is trusted beyond the bytes left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

# By field number: None keeps a value, a mapping says what to keep of a struct or of each struct of a list.
Wanted: TypeAlias = "Mapping[int, Wanted | None]"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS: Final = frozenset({_I16, _I32, _I64})
_LONG_LIST: Final = 15
_DEPTH_MAX: Final = 16
_VARINT_BITS_MAX: Final = 63


class ThriftError(ValueError):
    """The bytes are no Thrift struct."""


def decode(
    data: bytes, wanted: Wanted
) -> dict[int, Any]:  # Any: integers, bytes, lists and structs, as the file has it
    """Return the wanted fields of the struct that `data` begins with.

    Raises:
        ThriftError: it is none.
    """
    try:
        return _Reader(data).struct(wanted, 0)
    except IndexError:
        raise ThriftError("it ends within a value") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, wanted: Wanted, depth: int) -> dict[int, Any]:
        if depth > _DEPTH_MAX:
            raise ThriftError("it is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer()
            kind = header & 15
            if kind in {_TRUE, _FALSE}:
                continue
            if number in wanted:
                found[number] = self._value(kind, wanted[number], depth)
            else:
                self._value(kind, {}, depth)
        return found

    def _value(  # noqa: PLR0911 - a kind each
        self, kind: int, wanted: Wanted | None, depth: int
    ) -> object:
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _STRUCT:
            return self.struct(wanted or {}, depth + 1)
        if kind in {_LIST, _SET}:
            return self._list(wanted, depth)
        if kind == _MAP:
            return self._map(depth)
        if kind in {_TRUE, _FALSE, _BYTE}:
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        raise ThriftError(f"it has a value of unknown type {kind}")

    def _list(self, wanted: Wanted | None, depth: int) -> list[object]:
        header = self._byte()
        size = header >> 4 if header >> 4 != _LONG_LIST else self._varint()
        if depth > _DEPTH_MAX or size > len(self._data) - self._at:
            raise ThriftError(f"it claims a list of {size} values")
        return [self._value(header & 15, wanted, depth + 1) for _ in range(size)]

    def _map(self, depth: int) -> object:
        size = self._varint()
        kinds = self._byte() if size else 0
        if depth > _DEPTH_MAX or size > len(self._data) - self._at:
            raise ThriftError(f"it claims a map of {size} values")
        for _ in range(size):
            self._value(kinds >> 4, {}, depth + 1)
            self._value(kinds & 15, {}, depth + 1)
        return None  # nothing that the gates look at is a map

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the bit that says whether more follow
                return value
            shift += 7
            if shift > _VARINT_BITS_MAX:
                raise ThriftError("it has an integer of more than 64 bits")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ThriftError(f"it claims {size} bytes")
        self._at += size
        return self._data[self._at - size : self._at]
