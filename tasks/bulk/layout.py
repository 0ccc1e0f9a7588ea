"""Where the documents and files of a run are, below its output.

    OUTPUT/_batchmill/plan.json                           the plan
    OUTPUT/_batchmill/documents-….jsonl                   the documents of a run whose inputs are the documents
    OUTPUT/_batchmill/differs/000003-1f0c9a521f0c9a52     shard 3 was made again, with other bytes
    OUTPUT/[dt=2026-01-01/]part-000003-….parquet          the parts; `tasks.bulk.parts` names them
    OUTPUT/_rejects/part-000003-…-1f0c9a52….rejects       the rows of a part that have an error, as Parquet
    OUTPUT/manifest.json, OUTPUT/_SUCCESS                 the result is complete

Readers skip names that begin with `_`, and a glob over `*.parquet` finds the parts alone. Every function takes the
output however it is spelt. Pure, but for the working directory that a relative path begins at; it asks no store.
"""

from __future__ import annotations

import os
import re
from typing import Final

from schemas.bulk_manifest import MANIFEST_FILE, SUCCESS_FILE
from schemas.bulk_plan import PLAN_FILE
from worker.storage.errors import BadLocation
from worker.storage.objects import local_path, scheme_of, split_s3
from worker.storage.patterns import Pattern

_OWN: Final = "_batchmill"
_REJECTS: Final = "_rejects"
_DIFFERS: Final = f"{_OWN}/differs"
_PART: Final = re.compile(r"part-\d{6,}-[0-9a-f]{8}-[0-9a-f]{8}\.parquet")
_SHA_DIGITS: Final = 16
_LISTING: Final = re.compile(rf"(.*/)?{_OWN}/documents-[0-9a-f]{{16}}\.jsonl")


def normalised(uri: str) -> str:
    """Return a prefix as every worker means it: without a slash at the end, and a path absolute and without `file://`.

    Raises:
        BadLocation: nothing here reads this kind of URI, or it has wildcards.
    """
    if Pattern(uri).is_glob:
        raise BadLocation(uri, "an output has no wildcards; give a prefix or a directory")
    match scheme_of(uri):
        case "s3":
            bucket, key = split_s3(uri)
            return f"s3://{bucket}/{key}".rstrip("/")
        case "file":
            return os.path.abspath(local_path(uri))  # noqa: PTH100 - resolves no links, unlike Path
        case scheme:
            raise BadLocation(uri, f"{scheme}:// is not supported; give s3://bucket/key, file:///path or a path")


def plan_uri(output: str) -> str:
    """Return where the plan is."""
    return _below(output, f"{_OWN}/{PLAN_FILE}")


def listing_uri(output: str, sha256: str) -> str:
    """Return where the list of a run's documents is, given the SHA-256 of its content."""
    return _below(output, f"{_OWN}/documents-{sha256[:_SHA_DIGITS]}.jsonl")


def is_listing(uri: str) -> bool:
    """Whether an address is one that `listing_uri` gives."""
    return _LISTING.fullmatch(uri) is not None


def manifest_uri(output: str) -> str:
    """Return where the manifest is, once the run is done."""
    return _below(output, MANIFEST_FILE)


def success_uri(output: str) -> str:
    """Return where the empty object is that other readers wait for; it comes after the manifest."""
    return _below(output, SUCCESS_FILE)


def part_uri(output: str, name: str) -> str:
    """Return where the part is that `part_names` calls `name`."""
    return _below(output, name)


def rejects_prefix(output: str, part_name: str) -> str:
    """Return what the URI of a part's rejects begins with: in one folder, whatever partition the part is in."""
    return _below(output, f"{_REJECTS}/{part_name.rpartition('/')[2].removesuffix('.parquet')}-")


def rejects_uri(output: str, part_name: str, sha256: str) -> str:
    """Return where the rejected rows of a part are: those of the part that stands, not of one that came too late."""
    return f"{rejects_prefix(output, part_name)}{sha256[:_SHA_DIGITS]}.rejects"


def differs_prefix(output: str) -> str:
    """Return what the URIs of all markers of differing parts begin with, up to and with the slash."""
    return _below(output, f"{_DIFFERS}/")


def differs_uri(output: str, shard: int, sha256: str) -> str:
    """Return the marker that says: this shard was made again, into bytes of this SHA-256, and another part stands."""
    return f"{differs_prefix(output)}{shard:06d}-{sha256[:_SHA_DIGITS]}"


def is_of_a_run(uri: str, output: str) -> bool:
    """Whether an object is what a run leaves below this output, and so no input of one."""
    prefix = _below(output, "")
    if not uri.startswith(prefix):
        return False
    name = uri.removeprefix(prefix)
    return (
        name.startswith((f"{_OWN}/", f"{_REJECTS}/"))
        or name in (MANIFEST_FILE, SUCCESS_FILE)
        or _PART.fullmatch(name.rpartition("/")[2]) is not None
    )


def _below(output: str, name: str) -> str:
    return f"{normalised(output).rstrip('/')}/{name}"
