"""Calls of an S3 client that end: in an answer, or in a `StorageError` within a stated time.

botocore repeats a request that was throttled or lost. It has no deadline, and knows nothing of a body that stops
half-way or trickles; both are added here. Its adaptive mode is used only where AWS_RETRY_MODE asks for it: the rate
that it allows falls so low when a fifth of the requests are throttled that 60 small writes of 8 threads took 44 s
instead of 3, and its waits know no deadline. What botocore raises is translated here and nowhere else.
"""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's own
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    SSOError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from worker.storage.errors import (
    BadLocation,
    Damaged,
    Forbidden,
    NotConditional,
    NotFound,
    OutOfSpace,
    StorageError,
    TooLarge,
    Unavailable,
    Unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Client = Any  # boto3 makes the class of a client at run time
    Answer = dict[str, Any]  # its fields are those of S3's API

T = TypeVar("T")

_CHUNK_BYTES: Final = 256 * 1024
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
_CODE: Final = re.compile(r"\w[\w.]{0,63}")
_NO_ACCESS: Final = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    NoAuthTokenError,
    SSOError,
)
_LOST: Final = (
    ConnectionError,
    HTTPClientError,
    ResponseParserError,
    HTTPError,
)  # connections, timeouts, answers that make no sense
_UNCONNECTED: Final = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError, SSLError)
_FOREIGN: Final = (BotoCoreError, ClientError, *_LOST)
_DIGESTS: Final = frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"})
_AGAIN: Final = frozenset({"SlowDown", "RequestTimeout", "InternalError", "IncompleteBody", "RequestTimeTooSkewed"})
_TOO_LARGE: Final = frozenset({"EntityTooLarge", "MaxMessageLengthExceeded"})
_FULL: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"})


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a call may take. Seconds.

    Attributes:
        connect_s: for a connection.
        read_s: between two signs of life of the store; all that bounds the short answers, of a list or a PUT.
        transfer_s: for one body, plus a second for each `slowest_bytes_per_s` of it.
        total_s: no new attempt of a call is made after this.
        unreachable_s: likewise, while no connection comes about and none ever has.
        slowest_bytes_per_s: a slower transfer is cut and made again on a new connection.
        attempts: of botocore, in each attempt of ours.
    """

    connect_s: float = 5.0
    read_s: float = 20.0
    transfer_s: float = 20.0
    total_s: float = 120.0
    unreachable_s: float = math.inf
    slowest_bytes_per_s: int = 1024 * 1024
    attempts: int = 3

    def transfer_limit_s(self, size_bytes: int) -> float:
        """Return how long a body of this size may take."""
        return self.transfer_s + size_bytes / self.slowest_bytes_per_s


class Caller:
    """One client, made at the first call, and again in a child after a fork. Thread-safe.

    Credentials, region, endpoint and addressing style are what boto3 finds. A fork while another thread makes its first
    call is the one moment that is not safe.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._client: Client = None
        self._was_reached = False

    def call(self, uri: str, work: Callable[[Client, int], T]) -> T:
        """Return what `work` does with the client and the number of the attempt, from 0; repeat what is transient.

        Raises:
            StorageError: translated from what botocore raised; `Unavailable` or `Damaged` only after `total_s`, or
                `unreachable_s`.
        """
        began_s = time.monotonic()
        for number in count():
            try:
                done = work(self._client_of_this_process(), number)
            except _FOREIGN as error:
                failure = translated(uri, error)
                cause: BaseException | None = error
            except StorageError as error:
                failure, cause = error, error.__cause__
            else:
                self._was_reached = True
                return done
            give_up_s = began_s + self._patience_s(failure)
            wait_s = min(_FIRST_WAIT_S * 2 ** min(number, 10), _LONGEST_WAIT_S) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            if not isinstance(failure, Unavailable | Damaged) or time.monotonic() + wait_s > give_up_s:
                raise failure from cause
            time.sleep(wait_s)
        raise AssertionError("unreachable")

    def _patience_s(self, failure: StorageError) -> float:
        self._was_reached = self._was_reached or not isinstance(failure, Unreachable)
        return self._limits.total_s if self._was_reached else min(self._limits.unreachable_s, self._limits.total_s)

    def _client_of_this_process(self) -> Client:
        if self._pid != os.getpid():  # sockets and locks are the parent's
            self._client, self._lock, self._pid = None, threading.Lock(), os.getpid()
        with self._lock:
            if self._client is None:
                self._client = _new_client(self._limits)
            return self._client


def append_body(uri: str, answer: Answer, into: bytearray, wanted: int, limits: Limits) -> None:
    """Append the body of `answer` to `into` until that has `wanted` bytes; what has come stays there on an error.

    Raises:
        Unavailable: it broke off, or it trickles.
    """
    raw = answer["Body"]._raw_stream  # noqa: SLF001 - StreamingBody waits for all that it is asked for; a trickle never ends
    until_s = time.monotonic() + limits.transfer_limit_s(wanted - len(into))
    try:
        while len(into) < wanted:
            piece = raw.read1(min(_CHUNK_BYTES, wanted - len(into)))
            if not piece:
                raise Unavailable(uri, f"the store sent {len(into):,} of {wanted:,} bytes; try again later")
            into += piece
            if time.monotonic() > until_s and len(into) < wanted:
                raise Unavailable(uri, "the store sends too slowly; look at its load, then try again")
        raw.read(1)  # the end, which gives the connection back to the pool
    finally:
        raw.close()


def translated(uri: str, error: Exception) -> StorageError:
    """Return what a foreign error means; the text has its kind or code, never its own words."""
    kind = type(error).__name__
    if isinstance(error, ClientError):
        return _refusal(uri, *code_and_status(error))
    if isinstance(error, _NO_ACCESS):
        return Forbidden(uri, f"boto3 finds no usable credentials ({kind}); see its credential providers")
    if isinstance(error, _UNCONNECTED):
        return Unreachable(
            uri, f"no connection to the store ({kind}); check AWS_ENDPOINT_URL_S3, AWS_CA_BUNDLE and the network"
        )
    if isinstance(error, _LOST):
        return Unavailable(
            uri, f"the store does not answer ({kind}); check AWS_ENDPOINT_URL_S3, AWS_CA_BUNDLE and the network"
        )
    if isinstance(error, ParamValidationError):
        return BadLocation(uri, "boto3 refuses this name of a bucket or an object; it is written s3://bucket/key")
    return StorageError(uri, f"boto3 cannot work as it is configured ({kind}); check its settings and AWS_ variables")


def code_and_status(error: ClientError) -> tuple[str, int]:
    """Return the store's error code, if it looks like one, and the HTTP status."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return code if _CODE.fullmatch(code) else "no code", status


def _refusal(uri: str, code: str, status: int) -> StorageError:  # noqa: PLR0911 - a table
    answer = f"{status} {code}"
    if code in _DIGESTS:
        return Damaged(uri, f"the bytes were damaged on their way to the store ({answer}); look at the network")
    if code in _TOO_LARGE or status == 413:  # noqa: PLR2004 - an HTTP status, as below
        return TooLarge(uri, f"the store takes no object of this size ({answer}); write smaller parts")
    if code in _FULL or status == 507:  # noqa: PLR2004
        return OutOfSpace(uri, f"the store is full ({answer}); free some space, then resume")
    if status == 501:  # noqa: PLR2004
        return NotConditional(uri, f"the store cannot do what it was asked ({answer}); write to another")
    if code in _AGAIN or status in (408, 409, 425, 429) or status >= 500:  # noqa: PLR2004
        return Unavailable(uri, f"the store is busy or failing ({answer}); try again later, or lower the load")
    if status == 404:  # noqa: PLR2004
        return NotFound(
            uri, "there is no such bucket" if code == "NoSuchBucket" else f"there is no such object ({code})"
        )
    if status in (401, 403):
        return Forbidden(uri, f"the store refuses the credentials ({answer}); check them, their rights and the clock")
    return StorageError(uri, f"the store refuses the request ({answer}); check region, endpoint and bucket")


def _new_client(limits: Limits) -> Client:
    session = botocore.session.get_session()
    mode = "adaptive" if session.get_config_variable("retry_mode") == "adaptive" else "standard"
    config = Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        retries={"mode": mode, "total_max_attempts": limits.attempts},
        max_pool_connections=64,
        tcp_keepalive=True,
        # Older stores reject or store the checksums that boto3 adds by default (boto3#4392).
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # Else whoever gives out the credentials (STS, for a service account's role) is waited for by botocore's own limits:
    # 180 s, while a call's thread is bounded by a watchdog.
    session.set_default_client_config(config)
    return boto3.session.Session(botocore_session=session).client("s3", config=config)
