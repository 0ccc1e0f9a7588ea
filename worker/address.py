"""The address of the one Redis database, as a single URL names it, and as each library wants to hear it.

    redis://[user:password@]host[:port][/database]
    rediss://…the same…[?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE&ssl_cert_reqs=required]
    redis+socket://[user:password@]/path/to.sock[?virtual_host=database]
    sentinel://[user:password@]host[:port][/database][;sentinel://host…]?master_name=NAME

Celery, kombu and redis-py each leave one of these half understood: a `rediss://` without a query is plain text to kombu
and an error to Celery, `master_name` is an option beside the URL to both. It is parsed once, here, and what a URL says
that nobody would honour is refused. It opens no connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

PORTS: Final = {"redis": 6379, "rediss": 6379, "redis+socket": 0, "sentinel": 26379}
_SSL_FILES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_QUERY_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "redis": frozenset(),
    "rediss": _SSL_FILES | {"ssl_cert_reqs"},
    "redis+socket": frozenset({"virtual_host"}),
    "sentinel": frozenset({"master_name"}),
}
_VERIFICATIONS: Final = {name: name for name in ("required", "optional", "none")} | {
    f"CERT_{name.upper()}": name for name in ("required", "optional", "none")
}
_PREFIX_REFUSED: Final = (
    "global_keyprefix is not supported: kombu puts it before a script's first key only, so that the worker and its "
    "producers would use different lists; give batchmill a database of its own instead"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is.

    Attributes:
        scheme: a key of `PORTS`.
        hosts: host and port; several of Sentinel, none of a socket.
        path: of the socket, else empty.
        database: its number.
        username, password: None where the URL has none.
        options: the query, checked: TLS files, `ssl_cert_reqs` (required, optional or none), `master_name`.
    """

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    path: str
    database: int
    username: str | None
    password: str | None
    options: Mapping[str, str]

    @property
    def celery_url(self) -> str:
        """The URL that a stock Celery understands, as its broker and as its result backend."""
        match self.scheme:
            case "redis+socket":
                return f"redis+socket://{self._user_info}{quote(self.path)}?virtual_host={self.database}"
            case "rediss":
                verification = {"ssl_cert_reqs": f"CERT_{self.options['ssl_cert_reqs'].upper()}"}
                return f"{self._host_urls}?{urlencode({**self.options, **verification})}"
            case _:
                return self._host_urls

    @property
    def transport_options(self) -> dict[str, str]:
        """What Celery wants beside the URL, for the broker and for the result backend."""
        return dict(self.options) if self.scheme == "sentinel" else {}

    @property
    def _host_urls(self) -> str:
        return ";".join(f"{self.scheme}://{self._user_info}{host}:{port}/{self.database}" for host, port in self.hosts)

    @property
    def _user_info(self) -> str:
        if self.username is None and self.password is None:
            return ""
        return f"{quote(self.username or '', safe='')}:{quote(self.password or '', safe='')}@"


def split(url: str) -> list[str]:
    """Return the addresses of a list of Sentinels, or the one address."""
    return re.split(r";(?=sentinel://)", url)


def parse(url: str) -> Address:
    """Return what `url` says.

    Raises:
        ValueError: it is no address of a Redis database; the text quotes neither user nor password.
    """
    scheme = url.partition("://")[0]
    if scheme not in PORTS:
        raise ValueError(f"the broker must be one of {', '.join(f'{name}://' for name in PORTS)}")
    try:
        parts = [urlsplit(one) for one in split(url)]
        hosts = () if scheme == "redis+socket" else tuple(map(_host, parts))
    except ValueError:  # its text may quote the password
        raise ValueError("host and port of the address cannot be read; escape special characters as %XX") from None
    return Address(
        scheme=scheme,
        hosts=hosts,
        path=_socket_path(parts[0]) if scheme == "redis+socket" else "",
        database=_database(parts),
        username=_decoded(parts[0].username),
        password=_decoded(parts[0].password),
        options=_options(scheme, parts[-1].query),
    )


def _host(part: SplitResult) -> tuple[str, int]:
    host = part.hostname or "localhost"
    return f"[{host}]" if ":" in host else host, part.port or PORTS[part.scheme]


def _socket_path(part: SplitResult) -> str:
    if part.hostname or len(part.path) <= 1:
        raise ValueError("a redis+socket:// address has three slashes and a path: redis+socket:///run/valkey.sock")
    return unquote(part.path)


def _database(parts: list[SplitResult]) -> int:
    """Return the database's number: of Sentinel the first part's, or the last's."""
    if parts[0].scheme == "redis+socket":
        text = dict(parse_qsl(parts[0].query)).get("virtual_host", "")
    else:
        text = next(filter(None, (part.path.strip("/") for part in parts)), "")
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError("the database at the address's end must be a number")
    return int(text or 0)


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None


def _options(scheme: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query))
    if "global_keyprefix" in given:
        raise ValueError(_PREFIX_REFUSED)
    unknown = sorted(given.keys() - _QUERY_KEYS[scheme])
    if unknown:
        known = ", ".join(sorted(_QUERY_KEYS[scheme])) or "none"
        raise ValueError(f"{', '.join(unknown)}: not an option of a {scheme}:// address; it takes {known}")
    if scheme == "sentinel" and not given.get("master_name"):
        raise ValueError("a sentinel:// address ends with ?master_name=NAME, as Sentinel calls the primary")
    if scheme == "rediss":
        given["ssl_cert_reqs"] = _verification(given.get("ssl_cert_reqs", "required"))
    given.pop("virtual_host", None)
    return given


def _verification(text: str) -> str:
    if text not in _VERIFICATIONS:
        raise ValueError("ssl_cert_reqs must be required, optional or none")
    return _VERIFICATIONS[text]
