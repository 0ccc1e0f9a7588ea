"""Whether the Redis or Valkey database can keep the worker's promises.

A broker that evicts keys loses jobs, one without an append-only file loses them at its restart, a replica or
a cluster cannot run the queues at all. `judge` decides from the server's INFO, `examine` asks the server. It
does not know how queues and results are laid out in the database.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from worker import keys
from worker.address import parse
from worker.errors import ConfigError
from worker.ops.findings import Finding, Status, fail, ok, warn
from worker.settings import Settings, mask_url

TIMEOUT_S: Final = 5.0
_TIMEOUTS: Final = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
OLDEST_SERVER: Final = (7, 0)  # scripts that may run on a full server say so since then
_FULL_SHARE: Final = 0.9
_PROBE_TTL_S: Final = 10


def connect(broker_url: str, *, decode_responses: bool = True) -> redis.Redis:
    """Return a client with timeouts; connects at its first command.

    Args:
        broker_url: any form that `worker.address` knows.
        decode_responses: give text instead of bytes; messages may be no text.

    Raises:
        ConfigError: the address cannot be parsed.
    """
    try:
        address = parse(broker_url)
    except ValueError as error:
        raise ConfigError(f"BATCHMILL_BROKER_URL: {mask_url(broker_url)}: {error}") from error
    options: dict[str, Any] = {  # Any: the keyword arguments of redis-py's classes
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "decode_responses": decode_responses,
        **address.options,
        **_TIMEOUTS,
        "retry": Retry(NoBackoff(), 0),  # the default would repeat a timeout
    }
    match address.scheme:
        case "redis+socket":
            return redis.Redis(unix_socket_path=address.path, **options)
        case "sentinel":
            name = options.pop("master_name")
            master: redis.Redis = Sentinel(address.hosts, **_TIMEOUTS).master_for(name, **options)  # type: ignore[no-untyped-call] # theirs has no types
            return master
        case _:
            (host, port), tls = address.hosts[0], address.scheme == "rediss"
            return redis.Redis(host=host.strip("[]"), port=port, ssl=tls, **options)


def answers(broker_url: str) -> bool:
    """Tell whether the broker serves commands now; true too if it refuses, which waiting does not change.

    Raises:
        ConfigError: the address cannot be parsed.
    """
    with connect(broker_url) as client:
        try:
            client.ping()
        except (AuthenticationError, ResponseError):
            return True
        except RedisError:
            return False
    return True


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield findings about the broker, first whether it answers. Blocks up to `TIMEOUT_S` a command.

    Raises:
        ConfigError: the address cannot be parsed.
    """
    address = settings.safe_broker_url
    client = connect(settings.broker_url)
    try:
        client.ping()
        yield ok("broker", f"{address} answers")
        yield from _judge_server(client)
        yield _probe_write(client, settings)
    except AuthenticationError:
        yield fail("broker", f"{address} refuses the credentials", "set user and password in BATCHMILL_BROKER_URL")
    except RedisError as error:
        yield fail(
            "broker",
            f"{address} does not answer: {error}",
            "start Redis or Valkey there, or set BATCHMILL_BROKER_URL to where it runs",
        )
    finally:
        client.close()


def require(findings: Iterator[Finding]) -> list[Finding]:
    """Return the findings if none failed.

    Raises:
        ConfigError: one failed; the text is its own and its remedy.
    """
    seen = list(findings)
    failed = [f"{each.name}: {each.text}; {each.remedy}" for each in seen if each.status is Status.FAIL]
    if failed:
        raise ConfigError(". ".join(failed))
    return seen


def judge(info: Mapping[str, object]) -> Iterator[Finding]:
    """Yield findings from the fields of a server's INFO. Pure."""
    yield _judge_version(info)
    yield from _judge_role(info)
    yield _judge_policy(info)
    yield _judge_memory(info)
    yield _judge_durability(info)


def _judge_server(client: redis.Redis) -> Iterator[Finding]:
    try:
        info = dict(cast("Mapping[str, object]", client.info()))
    except NoPermissionError:
        yield fail(
            "broker server",
            "its user may not read INFO, without which nothing that a dead worker held is given back",
            "allow the command: ACL SETUSER … +info",
        )
        return
    if "maxmemory_policy" not in info:
        info |= _configured_policy(client)
    yield from judge(info)


def _configured_policy(client: redis.Redis) -> dict[str, object]:
    """Ask CONFIG, which managed servers forbid, for what INFO did not say."""
    try:
        config = cast("Mapping[str, object]", client.config_get("maxmemory-policy"))
    except ResponseError:
        return {}
    policy = config.get("maxmemory-policy")
    return {"maxmemory_policy": policy} if policy else {}


def _judge_version(info: Mapping[str, object]) -> Finding:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version") or "unknown")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers and numbers < OLDEST_SERVER:
        return fail("broker server", f"{name} {version} is too old", "run Valkey, or Redis 7.0 or newer")
    return ok("broker server", f"{name} {version}")


def _judge_role(info: Mapping[str, object]) -> Iterator[Finding]:
    if info.get("role") == "slave":
        yield fail("broker role", "this server is a read-only replica", "point BATCHMILL_BROKER_URL at the primary")
    if _number(info, "cluster_enabled"):
        yield fail(
            "broker role",
            "cluster mode is on, where the keys of one queue may live on different nodes",
            "use a server without cluster mode",
        )


def _judge_policy(info: Mapping[str, object]) -> Finding:
    name, policy = "broker policy", info.get("maxmemory_policy")
    if policy is None:
        return warn(
            name,
            "maxmemory-policy cannot be read",
            "make sure by hand that it is noeviction, or jobs can vanish",
        )
    if policy != "noeviction":
        return fail(
            name,
            f"maxmemory-policy is {policy}: under memory pressure the server throws jobs away",
            "CONFIG SET maxmemory-policy noeviction, and set it in the server's configuration",
        )
    return ok(name, "maxmemory-policy is noeviction")


def _judge_memory(info: Mapping[str, object]) -> Finding:
    used, limit = _number(info, "used_memory"), _number(info, "maxmemory")
    text = f"{used / 2**20:.0f} MiB used of {f'{limit / 2**20:.0f} MiB' if limit else 'no limit'}"
    if limit and used > _FULL_SHARE * limit:
        return warn(
            "broker memory",
            text,
            "raise maxmemory, add workers, or lower BATCHMILL_RESULT_TTL_S: full means refused",
        )
    return ok("broker memory", text)


def _judge_durability(info: Mapping[str, object]) -> Finding:
    name = "broker durability"
    if not _number(info, "aof_enabled"):
        return warn(
            name,
            "the append-only file is off: queued jobs do not survive a restart of the server",
            "CONFIG SET appendonly yes, and set appendonly yes, appendfsync everysec in its configuration",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return fail(name, "the append-only file cannot be written", "free disk space on the server")
    return ok(name, "the append-only file is on")


def _probe_write(client: redis.Redis, settings: Settings) -> Finding:
    key = f"{keys.DOCTOR_PREFIX}{secrets.token_hex(8)}"
    try:
        client.set(key, "1", ex=_PROBE_TTL_S)
        client.delete(key)
    except ResponseError as error:
        return fail("results", f"the database refuses to be written: {error}", "check its ACL and its memory")
    return ok("results", f"same database, kept for {settings.result_ttl_s} s")


def _number(info: Mapping[str, object], field: str) -> float:
    value = info.get(field, 0)
    return float(value) if isinstance(value, int | float) else 0.0
