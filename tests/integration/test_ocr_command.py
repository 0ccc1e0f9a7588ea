"""`batchmill ocr` prints what files say, page by page, and says of each that it cannot read why."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import cv2
import pytest
from click.testing import CliRunner, Result

from schemas.errors import ErrorCode
from tasks.cli import main
from tests import documents, pdf_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WORDS = {"Rechnung", "4711", "Übergrößen", "Weißenburger", "Nürnberg", "1.234,56", "€"}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, ocr_model: Path) -> None:
    monkeypatch.setenv("BATCHMILL_OCR_MODEL", ocr_model.name)
    monkeypatch.setenv("BATCHMILL_MODELS_DIR", str(ocr_model.parent))


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    path = tmp_path / "letter.png"
    path.write_bytes(documents.saved(documents.image(), "PNG"))
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "damaged.png"
    path.write_bytes(documents.saved(documents.image(), "PNG")[:2_000])
    return path


@pytest.fixture
def two_pages(tmp_path: Path) -> Path:
    path = tmp_path / "two.pdf"
    path.write_bytes(pdf_files.scans([documents.image(), documents.image()]))
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["ocr", *map(str, args)])


@pytest.mark.usefixtures("model")
def test_the_text_of_a_file_is_printed_a_row_a_line(letter: Path) -> None:
    result = run(letter)
    assert result.exit_code == 0, result.output
    assert set(result.stdout.split()) >= WORDS
    assert len(result.stdout.splitlines()) == len(documents.LINES)
    assert result.stderr == ""


@pytest.mark.usefixtures("model")
def test_of_several_files_each_has_a_heading_and_what_cannot_be_read_a_line_beside_them(
    damaged: Path, letter: Path, two_pages: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("no picture")

    result = run(note, letter, damaged, tmp_path, two_pages)

    lines = result.stdout.splitlines()
    headings = [at for at, line in enumerate(lines) if line.startswith("==> ")]
    assert [lines[at] for at in headings] == [f"==> {letter} <==", f"==> {two_pages} <=="]
    read = len(documents.LINES)
    assert headings == [0, 1 + read + 1], "a heading, the letter, an empty line, a heading"
    assert (lines[1 + read], len(lines)) == ("", 2 * 1 + read + 1 + 2 * read)
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == [
        str(note),
        f"{damaged}, page 1",
        str(tmp_path),
    ]
    assert "Is a directory" in result.stderr
    assert result.exit_code == 1


@pytest.mark.usefixtures("model")
def test_with_json_each_page_is_a_line_with_its_lines_and_boxes(two_pages: Path) -> None:
    result = run(two_pages, "--json")
    pages = [json.loads(line) for line in result.stdout.splitlines()]

    assert result.exit_code == 0, result.output
    assert [(page["file"], page["page"]) for page in pages] == [(str(two_pages), 1), (str(two_pages), 2)]
    for page in pages:
        assert (page["width"], page["height"], page["rotation"]) == (documents.WIDTH, documents.HEIGHT, 0)
        assert "\n".join(line["text"] for line in page["lines"]) == page["text"]
        for line in page["lines"]:
            assert 0.5 < line["confidence"] <= 1
            assert all(0 <= x <= documents.WIDTH and 0 <= y <= documents.HEIGHT for x, y in line["box"])


@pytest.mark.usefixtures("model")
def test_an_overlay_shows_the_first_page_beside_its_text(two_pages: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen.png"
    assert run(two_pages, "--overlay", seen).exit_code == 0
    picture = cv2.imread(str(seen))
    assert picture is not None
    assert picture.shape == (documents.HEIGHT, 2 * documents.WIDTH, 3)
    assert picture[:, documents.WIDTH :].min() < 100, "no text was drawn"


@pytest.mark.usefixtures("model")
def test_a_damaged_file_is_named_with_its_code_and_the_next_one_is_read(damaged: Path, letter: Path) -> None:
    result = run(damaged, letter)
    assert result.exit_code == 1
    assert set(result.stdout.split()) >= WORDS
    assert f"{damaged}, page 1: " in result.stderr
    assert ErrorCode.DAMAGED_DOCUMENT in result.stderr


@pytest.mark.usefixtures("model")
def test_with_json_a_damaged_file_is_a_line_with_its_error(damaged: Path) -> None:
    result = run(damaged, "--json")
    (page,) = (json.loads(line) for line in result.stdout.splitlines())
    assert result.exit_code == 1
    assert page["error"]["code"] == ErrorCode.DAMAGED_DOCUMENT
    assert "lines" not in page


def test_without_the_model_it_says_how_to_build_it(
    letter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHMILL_CACHE_DIR", str(tmp_path))
    result = run(letter, "--model", "tiny")
    assert result.exit_code == 3
    assert "run `batchmill model build ocr --profile tiny`" in result.stderr


def test_without_its_libraries_it_says_what_to_install(letter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tasks.ocr.reader", raising=False)
    monkeypatch.setitem(sys.modules, "cv2", None)

    result = run(letter)

    assert (result.exit_code, "pip install 'batchmill[ocr]'" in result.stderr) == (3, True), result.output


def test_text_and_json_at_once_is_wrong_usage(letter: Path) -> None:
    assert run(letter, "--text", "--json").exit_code == 2


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert run(tmp_path / "nothing.png").exit_code == 2
