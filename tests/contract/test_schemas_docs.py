import base64
import json
import re
from pathlib import Path

import pytest

from schemas.names import ENQUEUED_AT_HEADER, QUEUE_CLASSIFY, TASK_CLASSIFY
from schemas.reference import blocks, refresh

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "contract.md").read_text("utf-8")


def test_the_page_shows_the_tables_and_examples_of_the_models() -> None:
    assert refresh(PAGE) == PAGE, "run `python -m schemas.reference docs/contract.md`"


def test_every_table_and_example_stands_on_the_page_once() -> None:
    assert sorted(re.findall(r"<!-- generated: (\S+) -->", PAGE)) == sorted(blocks())


def test_a_block_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such-block"):
        refresh("<!-- generated: no-such-block -->\n<!-- end -->")


def test_every_link_of_the_page_leads_to_a_file_or_a_heading() -> None:
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in PAGE.splitlines() if line.startswith("#")}
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert target.removeprefix("#") in headings if target.startswith("#") else (DOCS / target).exists()


def test_the_message_shown_is_one_that_kombu_would_write() -> None:
    shown = json.loads(re.search(r"```json\n(   \{\n.*?)```", PAGE, re.DOTALL)[1])
    args, kwargs, embed = json.loads(base64.b64decode(shown["body"]))
    assert (args, list(kwargs), embed) == ([], ["tickets"], {})
    assert shown["headers"]["task"] == TASK_CLASSIFY
    assert shown["properties"]["delivery_info"] == {"exchange": "", "routing_key": QUEUE_CLASSIFY}
    assert ENQUEUED_AT_HEADER in shown["headers"]
