"""Runs the Lua scripts of `worker/lua` that look at queues or mend them; those of a worker are the ledger's.

Each is one step for the server: what it sees belongs together, and what it moves is never in two places or none.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis
    from redis.client import Pipeline


def run(client: redis.Redis, name: str, keys: Sequence[str], *arguments: str | bytes | float) -> Any:  # noqa: ANN401 - as the script says
    """Run the script `name` and return its answer; on a pipeline it answers with the others."""
    return client.register_script(_source(name))(keys=keys, args=arguments)


def put(pipe: Pipeline, name: str, keys: Sequence[str], *arguments: str | bytes | float) -> None:
    """Let a pipeline run the script `name`; its answer comes with the others."""
    pipe.register_script(_source(name))(keys=keys, args=arguments, client=pipe)


@cache
def _source(name: str) -> str:
    return resources.files("worker").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
