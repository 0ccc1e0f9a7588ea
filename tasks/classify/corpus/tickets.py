"""The project's own labelled tickets, and how they are read: `train`, `test` and `demo`, one JSON object a line.

Why they exist: the default model's head needs examples, and a demo needs tickets that may be shown. All were written
for this project (README.md beside them says how). This module knows the files, not what is done with them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

LABELS: Final = (
    "access",
    "billing",
    "cancellation",
    "delivery",
    "feedback",
    "hardware",
    "howto",
    "outage",
    "refund",
    "security",
)

DIRECTORY: Final = Path(__file__).parent

Split = Literal["train", "test", "demo"]


@dataclass(frozen=True, slots=True)
class LabelledTicket:
    """One ticket and what it is about.

    Attributes:
        id: unique over all splits.
        lang: `en` or `de`.
        label: one of `LABELS`.
        fields: what a message carries: `text`, or `subject` and `body`.
    """

    id: str
    lang: str
    label: str
    fields: Mapping[str, str]


def path(split: Split) -> Path:
    """Return where a split lies."""
    return DIRECTORY / f"{split}.jsonl"


def read(split: Split) -> list[LabelledTicket]:
    """Read a split, in the file's order."""
    return [_ticket(json.loads(line)) for line in path(split).read_text(encoding="utf-8").splitlines()]


def _ticket(row: dict[str, str]) -> LabelledTicket:
    about = {key: row.pop(key) for key in ("id", "lang", "label")}
    return LabelledTicket(**about, fields=row)
