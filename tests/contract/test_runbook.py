"""The runbook speaks of alerts, metrics and keys that exist, and of every alert."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from worker.metrics import CATALOGUE

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "operate.md").read_text("utf-8")
ALERTS: Final = {
    rule["alert"]
    for group in yaml.safe_load((ROOT / "helm" / "files" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def test_every_alert_has_a_paragraph() -> None:
    assert re.findall(r"^### (Batchmill\w+)$", PAGE, flags=re.MULTILINE)
    assert set(re.findall(r"^### (Batchmill\w+)$", PAGE, flags=re.MULTILINE)) == ALERTS


def test_every_metric_on_the_page_is_published() -> None:
    named = set(re.findall(r"`(batchmill_[a-z_]+)`", PAGE))

    assert named
    assert named <= {metric.name for metric in CATALOGUE}


def test_every_link_leads_to_a_heading_or_a_file() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, heading = target.partition("#")
        page = (ROOT / "docs" / file) if file else ROOT / "docs" / "operate.md"
        assert page.exists(), target
        if heading:
            assert heading in headings(page.read_text("utf-8")), target


def headings(text: str) -> set[str]:
    """The anchors of a page, as they are made of its headings."""
    lines = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}
