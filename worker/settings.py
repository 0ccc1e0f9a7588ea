"""Every option of the worker: declared once, typed, documented, read from `BATCHMILL_*` variables.

One frozen `Settings` is parsed at start-up and passed down; nothing else reads the environment. The table
in docs/configuration.md is generated from this class (`worker.options`), so a new option documents itself. It knows
ranges and names; whether a broker answers or a model exists is for `worker.ops.doctor` and the parts that open them.
"""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from celery.utils.nodenames import host_format
from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from worker.address import Address, parse, split
from worker.errors import ConfigError

ENV_PREFIX = "BATCHMILL_"
MIB = 1024 * 1024
MASK = "***"

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]

# Kubernetes writes these into every pod beside a Service called batchmill or batchmill-…: no options.
_SERVICE_LINK = re.compile(rf"{ENV_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


def _split(value: object) -> object:
    """Turn `a, b` from the environment into a tuple; anything else is pydantic's to judge."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _pairs(value: object) -> object:
    """Turn `a=1, b=2` from the environment into pairs; anything else is pydantic's to judge."""
    if isinstance(value, str):
        return tuple(tuple(map(str.strip, pair.split("=", 1))) for pair in value.split(",") if pair.strip())
    return value


Sources = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)]
Rates = Annotated[tuple[tuple[str, Rate], ...], NoDecode, BeforeValidator(_pairs)]


class Settings(BaseSettings):
    """The worker's options; `load` builds it. Durations are seconds, sizes bytes or tokens."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,  # a broker URL carries a password
    )

    # The broker
    broker_url: str = Field(
        default="redis://localhost:6379/0",
        repr=False,
        description=(
            "Redis or Valkey database that holds queues and results: `redis://`, `rediss://`, `redis+socket://` or "
            "`sentinel://`; docs/redis.md has the forms."
        ),
    )
    queues: Names = Field(default=("classify", "bulk"), description="Queues that this worker consumes.")
    result_ttl_s: int = Field(default=86_400, ge=1, description="How long a result stays in the database.")
    max_message_bytes: int = Field(default=4 * MIB, ge=1024, description="Largest JSON body of a message.")
    max_result_bytes: int = Field(default=4 * MIB, ge=1024, description="Largest JSON result of a message.")

    # The model
    model: str = Field(
        default="default",
        min_length=1,
        description="Model to serve: `default`, a name below the models directory, or a directory.",
    )
    models_dir: Path = Field(default=Path("models"), description="Directory whose sub-directories are models.")
    cache_dir: Path = Field(
        default=Path("~/.cache/batchmill"),
        description="Downloads and built models; safe to delete, slow to rebuild.",
    )
    providers: Names = Field(
        default=("CPUExecutionProvider",),
        description="ONNX Runtime execution providers, best first; it refuses to start if one is missing.",
    )
    runners: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Threads that run batches on the shared session; 0 = one per CPU of the cgroup.",
    )

    # Text recognition, for the queues `ocr` and `bulk-ocr`
    ocr_model: str = Field(
        default="accurate",
        min_length=1,
        description="OCR model to serve: `accurate`, `latin`, `fast` or `tiny`, or a name below the models directory.",
    )
    document_sources: Sources = Field(
        default=(), description="From where documents may be read: `s3://bucket` or `s3://bucket/prefix/`, each."
    )
    max_document_message_bytes: int = Field(
        default=12 * MIB, ge=1024, description="Largest JSON body of a message on the queue `ocr`."
    )

    # Batching
    max_batch_size: int = Field(default=32, ge=1, le=4096, description="Most tickets in one model call.")
    max_batch_tokens: int = Field(
        default=512, ge=1, description="Most padded tokens in one model call; a longer ticket runs alone."
    )
    max_queue_delay_s: float = Field(
        default=0.0,
        ge=0,
        le=60,
        allow_inf_nan=False,
        description="How long a free runner waits for more tickets; 0 = never, load alone fills batches.",
    )
    planning_window: int = Field(
        default=256,
        ge=1,
        le=4096,
        description="How many waiting tickets the planner sorts into batches at once.",
    )
    ageing_s: float = Field(
        default=30.0,
        gt=0,
        allow_inf_nan=False,
        description="Wait after which a ticket rises by one priority band.",
    )

    # Jobs in hand, and how they end
    max_jobs_in_flight: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="Most messages that it fetches ahead; as many more urgent ones, at most 8, come on top.",
    )
    bulk_slots: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Messages of `bulk`, and of `bulk-ocr`, run at a time; a second one fills the gaps of the first.",
    )
    batch_timeout_s: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="Time after which a running batch is stopped."
    )
    stuck_grace_s: float = Field(
        default=20.0,
        gt=0,
        allow_inf_nan=False,
        description="Time that a stopped batch gets before the process exits.",
    )
    credit_s: float = Field(
        default=1.0,
        gt=0,
        le=60,
        allow_inf_nan=False,
        description="Seconds of its own work that it fetches ahead; not below the lesser of 32 items and 2 s.",
    )
    max_held_bytes: int = Field(
        default=256 * MIB, ge=MIB, description="Size of the held messages beyond which nothing more is fetched."
    )
    lease_s: float = Field(
        default=12.0,
        ge=3,
        le=600,
        allow_inf_nan=False,
        description="Without a sign of life for this long, the messages that a worker holds go to others.",
    )
    max_crashes: int = Field(
        default=3,
        ge=1,
        le=100,
        description="A message in inference at this many deaths of its worker goes to the dead letters.",
    )
    drain_timeout_s: float = Field(
        default=25.0,
        gt=0,
        allow_inf_nan=False,
        description="Time after SIGTERM for running batches to finish; keep it below the pod's grace period.",
    )

    # The process
    worker_name: str = Field(
        default="batchmill@%h", min_length=1, description="Celery node name; `%h` is the host name."
    )
    http_port: int = Field(
        default=0, ge=0, le=65_535, description="Port for `/live`, `/ready` and `/metrics`; 0 = none."
    )
    http_host: str = Field(
        default="0.0.0.0",  # noqa: S104 - probes and scrapers come from other hosts
        min_length=1,
        description="Address that the port is opened on.",
    )
    default_rates: Rates = Field(
        default=(("classify", 50.0), ("ocr", 0.5), ("bulk", 0.02), ("bulk-ocr", 0.02)),
        description="Messages a second that one busy worker of a queue ends, until workers have measured it.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line; per-job lines are `debug`."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto` = console when standard error is a terminal, else json."
    )

    @field_validator("broker_url")
    @classmethod
    def _parseable(cls, url: str) -> str:
        parse(url)
        return url

    @field_validator("models_dir", "cache_dir")
    @classmethod
    def _expanded(cls, path: Path) -> Path:
        return path.expanduser()

    @field_validator("worker_name")
    @classmethod
    def _of_this_host(cls, name: str) -> str:
        try:
            return str(host_format(name if "@" in name else f"{name}@%h"))
        except ValueError:
            raise ValueError("after a % comes h for the host name, n for its first part or d for the rest") from None

    @property
    def address(self) -> Address:
        """The broker's address, parsed."""
        return parse(self.broker_url)

    @property
    def safe_broker_url(self) -> str:
        """The broker's address without user, password or query: for people and logs."""
        return mask_url(self.broker_url)


def load(**overrides: object) -> Settings:
    """Parse the environment once, `overrides` (a command's flags; None = not given) winning over it.

    Raises:
        ConfigError: a value is out of range, or a `BATCHMILL_` variable is no option; quotes no value.
    """
    _refuse_unknown(name for name in os.environ if name.upper().startswith(ENV_PREFIX))
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors(include_input=False)))) from error


def mask_url(url: str) -> str:
    """Return `url`, be it one or several of Sentinel, with credentials and query replaced by `***`."""
    return ";".join(map(_mask_one, split(url)))


def _mask_one(url: str) -> str:
    parts = urlsplit(url)
    _, at, host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host}" if at else host
    return f"{parts.scheme}://{netloc}{parts.path}{f'?{MASK}' if parts.query else ''}"


def env_name(field: str) -> str:
    """Return the environment variable of a field."""
    return ENV_PREFIX + field.upper()


def _refuse_unknown(names: Iterable[str]) -> None:
    """Raise ConfigError for a misspelt option: skipping it would run on a default that nobody asked for."""
    known = {env_name(field) for field in Settings.model_fields}
    for name in sorted(set(map(str.upper, names)) - known):
        if not _SERVICE_LINK.fullmatch(name):
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "docs/configuration.md lists the options"
            raise ConfigError(f"{name} is no option of batchmill; {hint}")


def _explain(error: ErrorDetails) -> str:
    field = str(error["loc"][0]) if error["loc"] else "settings"
    return f"{env_name(field)}: {error['msg'].removeprefix('Value error, ')}"
