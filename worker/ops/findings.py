"""Findings: what a check saw, how bad it is, and how to mend it.

A check returns findings and decides nothing: `batchmill doctor` prints them, the worker's start refuses on a
failed one.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Status(StrEnum):
    """How bad a finding is: `fail` stops a worker from starting or from keeping its promises."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check saw.

    Attributes:
        name: what was checked, such as `broker policy`.
        status: how bad it is.
        text: what was seen; holds no credentials.
        remedy: how to mend it; empty when all is well.
    """

    name: str
    status: Status
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the fields as JSON types."""
        return {field: str(value) for field, value in asdict(self).items()}


def ok(name: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(name, Status.OK, text)


def warn(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that a worker can live with."""
    return Finding(name, Status.WARN, text, remedy)


def fail(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that must be mended."""
    return Finding(name, Status.FAIL, text, remedy)
