"""Where a document's bytes come from when it is no message's: as it was listed, or from a row; and from where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.limits import DocumentLimits
from tasks.ocr.objects import DocumentObjects
from tasks.ocr.stages import DocumentStage, Opened, Request
from tests import documents
from tests.papers import INFO
from worker.errors import ItemFailed
from worker.jobs import Cancellation
from worker.storage.local import LocalStore
from worker.storage.objects import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stage() -> Iterator[DocumentStage]:
    made = DocumentStage(INFO, DocumentLimits(), [], DocumentObjects())
    yield made
    made._decoder.close()  # noqa: SLF001 - a worker's ends with it


def ask(stage: DocumentStage, **fields: Any) -> object:  # noqa: ANN401 - any of its fields
    request = {"uri": None, "content": None, "first_page": 1, "last_page": None} | fields
    (outcome,) = stage.run([Request(**request)], Cancellation())
    return outcome


def code(outcome: object) -> ErrorCode:
    assert isinstance(outcome, ItemFailed)
    return outcome.code


def test_a_file_is_read_as_it_was_listed_or_not_at_all(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("kept", "replaced", "removed")]
    for path in paths:
        path.write_bytes(b"scan")
    kept, replaced, removed = (LocalStore().info(str(path)) for path in paths)
    paths[1].write_bytes(b"another")
    paths[2].unlink()
    objects = DocumentObjects()

    assert objects.read(kept, 4) == b"scan"
    for info, expected in (
        (replaced, ErrorCode.INPUT_CHANGED),
        (removed, ErrorCode.OBJECT_NOT_FOUND),
    ):
        with pytest.raises(ItemFailed) as failed:
            objects.read(info, 4)
        assert failed.value.code is expected
        assert str(tmp_path) not in failed.value.message
    with pytest.raises(ItemFailed, match="4 bytes, and 3 are allowed"):
        objects.read(kept, 3)


def test_a_listed_object_needs_the_allow_list_as_every_other(stage: DocumentStage) -> None:
    assert code(ask(stage, pinned=ObjectInfo("s3://elsewhere/scan.png", 1, "e"))) is ErrorCode.FORBIDDEN_URI


def test_a_listed_file_is_an_input_of_the_run_and_an_addressed_one_is_not(stage: DocumentStage, tmp_path: Path) -> None:
    path = tmp_path / "scan.tiff"
    path.write_bytes(documents.three_pages())

    opened = ask(stage, pinned=LocalStore().info(str(path)))

    assert isinstance(opened, Opened)
    assert opened.pages == range(3)
    assert code(ask(stage, uri=str(path))) is ErrorCode.FORBIDDEN_URI


@pytest.mark.parametrize(
    ("first", "last", "pages"),
    [(1, None, range(3)), (2, 9, range(1, 3)), (2, 2, range(1, 2))],
)
def test_the_pages_of_a_row_are_clipped_to_the_document(
    stage: DocumentStage, first: int, last: int | None, pages: range
) -> None:
    opened = ask(stage, data=documents.three_pages(), first_page=first, last_page=last, is_clipped=True)

    assert isinstance(opened, Opened)
    assert opened.pages == pages


def test_a_first_page_behind_the_last_is_none(stage: DocumentStage) -> None:
    asked = ask(stage, data=documents.three_pages(), first_page=4, last_page=9, is_clipped=True)

    assert code(asked) is ErrorCode.NO_SUCH_PAGE


def test_a_document_of_a_row_may_not_be_larger_than_one_in_a_store() -> None:
    stage = DocumentStage(INFO, DocumentLimits(document_bytes=10), [], DocumentObjects())

    assert code(ask(stage, data=b"x" * 11)) is ErrorCode.DOCUMENT_TOO_LARGE
