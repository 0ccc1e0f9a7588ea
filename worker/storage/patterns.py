"""Which objects a URI with wildcards means. Pure: it knows neither disks nor buckets.

`*`, `?` and `[…]` stay within one segment of the path, `**` crosses segments. A path without wildcards means the object
of this name or, as a directory, all below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_TOKENS: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^]/]*\]|[^*?[]+|\[")


@dataclass(frozen=True)
class Pattern:
    """A path or key with wildcards.

    Attributes:
        text: as given, after scheme and bucket.
    """

    text: str

    @property
    def is_glob(self) -> bool:
        """Whether it has wildcards."""
        return len(self.literal) < len(self.text)

    @property
    def literal(self) -> str:
        """What every match begins with: all before the first wildcard."""
        return re.split(r"[*?[]", self.text, maxsplit=1)[0]

    @property
    def directory(self) -> str:
        """The directory that holds every match, with its slash at the end; empty for the root of a bucket."""
        if self.is_glob:
            return self.literal[: self.literal.rfind("/") + 1]
        return self.text if self.text.endswith("/") or not self.text else f"{self.text}/"

    def matches(self, path: str) -> bool:
        """Whether the pattern means the object at `path`."""
        if path == self.text:  # also a name that happens to have brackets
            return not path.endswith("/")
        if not path.startswith(self.directory) or path.endswith("/") or _is_hidden(path[len(self.directory) :]):
            return False
        return not self.is_glob or self._expression.fullmatch(path) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile("".join(map(_translated, _TOKENS.findall(self.text))), re.DOTALL)


def _is_hidden(path: str) -> bool:
    """Whether a segment starts with `.` or `_`, as other readers see it: `_name=value` is a Hive partition."""
    return any(
        segment.startswith(".") or (segment.startswith("_") and "=" not in segment) for segment in path.split("/")
    )


def _translated(token: str) -> str:
    match token:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if token.startswith("[") and len(token) > 1:
        negated = token.startswith("[!")
        members = token[1 + negated : -1].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
        return (
            f"(?!/)[{'^' if negated else ''}{members}]" if negated or not members.startswith("^") else rf"[\{members}]"
        )
    return re.escape(token)
