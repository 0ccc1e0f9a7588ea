"""A table for a terminal of 80 columns breaks its headers between words and leaves no cell out."""

from __future__ import annotations

import io
from typing import Final

from rich.console import Console

from tasks.commands.view import Grid

WIDTH: Final = 80


def drawn(grid: Grid) -> str:
    text = io.StringIO()
    Console(file=text, width=WIDTH).print(grid.as_table())
    return text.getvalue()


def test_many_columns_keep_their_cells_and_words() -> None:
    counts = ("0-2", "3-5", "6-8", "9", "oldest s", "in flight", "overdue", "lease s", "dead", "unreadable", "items/s")

    shown = drawn(Grid(("queue", *counts), [("classify", *["12"] * len(counts)), ("bulk-ocr", *["-"] * len(counts))]))

    assert "…" not in shown
    for word in ("classify", "bulk-ocr", "overdue", "unreadable", "items/s", "flight"):
        assert word in shown


def test_what_is_too_long_goes_on_in_the_next_line() -> None:
    name = "batchmill@" + "w" * WIDTH

    shown = drawn(Grid(("worker", "seen s ago"), [(name, "1.5")]))

    assert "".join(line[:-4].strip() for line in shown.splitlines()[1:]).replace(" ", "").startswith(name[:60])
    assert "…" not in shown
    assert shown.count("w") >= WIDTH + 1
