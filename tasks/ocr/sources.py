"""Where a document's bytes may come from: the message itself, or an object under an allowed bucket and prefix.

Why it exists: whoever may send a message must not read with the worker's credentials what he may not read himself, nor
make the worker open addresses of its own network. So an address has to be written in the one plain way and nothing in
it is ever decoded, normalised or guessed: what would need that is forbidden. It reads nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.errors import ErrorCode
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Collection

_SCHEME: Final = "s3://"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)*")
_BUCKET_CHARACTERS: Final = range(3, 64)
_MOST_KEY_BYTES: Final = 1024
_SPECIAL: Final = frozenset("\\%?#")
# What another character must neither become by Unicode's normalisation nor look like.
_CONFUSABLE: Final = frozenset("/.:@ ") | _SPECIAL
_LOOKS_LIKE_ONE: Final = frozenset(
    "\u2044\u2215\u2571\u27cb\u29f6\u29f8\u2f03\u3033"  # slashes
    "\u0337\u0338"  # that strike through the letter before them
    "\u2216\u2572\u27cd\u29f5\u29f9"  # backslashes
    "\ua4f8\U00010a50"  # dots
)
# Control and format characters, surrogates, private, unassigned, and every separator but the space.
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class AllowedPrefix:
    """What may be read: the keys of a bucket that begin with a prefix.

    Attributes:
        bucket: its name.
        prefix: empty for the whole bucket, or one or more names, each with a slash behind it.

    Raises:
        ValueError: this can be no such bucket or prefix.
    """

    bucket: str
    prefix: str = ""

    def __post_init__(self) -> None:
        if not _is_bucket(self.bucket):
            raise ValueError(f"{self.bucket!r} is no name of a bucket")
        if self.prefix and not (self.prefix.endswith("/") and _is_plain_key(self.prefix[:-1])):
            raise ValueError(f"a prefix ends with a slash and is written as in s3://{self.bucket}/scans/2026/")

    @classmethod
    def parse(cls, text: str) -> AllowedPrefix:
        """Read `s3://bucket` or `s3://bucket/prefix/`.

        Raises:
            ValueError: it is neither.
        """
        if not text.startswith(_SCHEME):
            raise ValueError("what may be read is written s3://bucket or s3://bucket/prefix/")
        bucket, _, prefix = text[len(_SCHEME) :].partition("/")
        return cls(bucket, prefix)


def check_uri(uri: str, allowed: Collection[AllowedPrefix]) -> None:
    """Pass an address that is plainly `s3://BUCKET/KEY` and allowed.

    Raises:
        ItemFailed: `forbidden_uri`; the text does not repeat the address, which may hold a secret.
    """
    if not uri.startswith(_SCHEME):
        raise _forbidden("a document is inline, or named as s3://BUCKET/KEY, in lower case")
    bucket, _, key = uri[len(_SCHEME) :].partition("/")
    if not _is_bucket(bucket):
        raise _forbidden("between s3:// and the next slash stands the name of a bucket, and nothing else")
    if not _is_plain_key(key):
        raise _forbidden("the key has an empty, relative or encoded part, or characters that are not taken")
    if not any(place.bucket == bucket and key.startswith(place.prefix) for place in allowed):
        raise _forbidden("the worker does not read from there; its allow-list names buckets and prefixes")


def decode_inline(content: str, most_bytes: int) -> bytes:
    """Return the bytes of a document that is in the message, after looking at its length.

    Args:
        content: base64 as RFC 4648, section 4: standard alphabet, padded, without line breaks.
        most_bytes: of the document.

    Raises:
        ItemFailed: `document_too_large` or `invalid_base64`.
    """
    size_bytes = len(content) // 4 * 3 - content[-2:].count("=")
    if size_bytes > most_bytes:
        text = f"the document has {size_bytes} bytes, and inside a message {most_bytes} are allowed"
        raise ItemFailed(ErrorCode.DOCUMENT_TOO_LARGE, text)
    try:
        data = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise _no_base64() from None
    # The last characters of a padded text have spare bits: two texts must not mean the same bytes.
    if len(content) % 4 or base64.b64encode(data[len(data) // 3 * 3 :]) != content[len(data) // 3 * 4 :].encode():
        raise _no_base64()
    return data


def _is_bucket(text: str) -> bool:
    return len(text) in _BUCKET_CHARACTERS and _BUCKET.fullmatch(text) is not None and not text.endswith("-")


def _is_plain_key(key: str) -> bool:
    """Return whether a key means itself to everybody who reads it."""
    if not all(map(_is_plain, key)) or len(key.encode()) > _MOST_KEY_BYTES:
        return False
    return all(part.strip(". ") and part == part.strip() for part in key.split("/"))


def _is_plain(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and character not in _SPECIAL
    if unicodedata.category(character) in _INVISIBLE or character.isspace():
        return False
    return (_CONFUSABLE | _LOOKS_LIKE_ONE).isdisjoint(unicodedata.normalize("NFKC", character) + character)


def _forbidden(text: str) -> ItemFailed:
    return ItemFailed(ErrorCode.FORBIDDEN_URI, text)


def _no_base64() -> ItemFailed:
    return ItemFailed(ErrorCode.INVALID_BASE64, "the content is no base64 with padding and without line breaks")
