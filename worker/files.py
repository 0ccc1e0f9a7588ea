"""What is asked of a file everywhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex. Blocks while it is read."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
