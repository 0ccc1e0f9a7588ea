"""A whole database at one moment, to be compared with what it should hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import redis


class Snapshot:
    """Everything in the database, in two round trips."""

    _READS: Final[Mapping[str, str]] = {"string": "get", "list": "lrange", "hash": "hgetall", "zset": "zrange"}

    def __init__(self, client: redis.Redis) -> None:
        names: Any = client.keys()
        with client.pipeline() as pipe:
            for name in names:
                pipe.type(name)
            types = pipe.execute()
            for name, kind in zip(names, types, strict=True):
                bounds = (0, -1) if kind in {b"list", b"zset"} else ()
                getattr(pipe, self._READS[kind.decode()])(name, *bounds)
            values = pipe.execute()
        self._values = {name.decode(): value for name, value in zip(names, values, strict=True)}

    @property
    def names(self) -> set[str]:
        """Every key."""
        return set(self._values)

    def waiting(self, list_key: str) -> list[bytes]:
        """A list, its front first."""
        return self._values.get(list_key, [])[::-1]

    def hash(self, name: str) -> dict[str, bytes]:
        """A hash."""
        return {field.decode(): value for field, value in self._values.get(name, {}).items()}

    def ranking(self, name: str) -> list[str]:
        """A sorted set's members, the lowest score first."""
        return [member.decode() for member in self._values.get(name, [])]

    def strings(self, prefix: str) -> dict[str, str]:
        """The strings whose keys begin with `prefix`, by the rest of the key."""
        found = {name: value for name, value in self._values.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): value.decode() for name, value in found.items()}
