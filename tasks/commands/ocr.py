"""`batchmill ocr`: the text of images and PDFs, without a broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schemas.errors import ErrorCode
from tasks.commands.exits import Unfit, exit_failed
from tasks.commands.failures import reported
from worker.errors import ItemFailed
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.ocr.limits import DocumentLimits
    from tasks.ocr.reader import Page, PageReader


@dataclass(frozen=True, slots=True)
class Read:
    """One page of a file, or why it could not be read; a file that cannot be opened is page 0."""

    file: str
    page: int
    read: Page | None
    image: Any  # uint8[height, width, 3], as it was read
    error: ItemFailed | None


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, readable=False))
@click.option("--model", "ocr_model", help="`accurate`, `latin`, `fast`, `tiny`, or a directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a page, with boxes and confidences.")
@click.option("--text", "as_text", is_flag=True, help="Print the text only; the default.")
@click.option("--overlay", type=click.Path(path_type=Path), help="Draw what was read over the first page, as PNG.")
@reported
def ocr(*, files: tuple[Path, ...], ocr_model: str | None, as_json: bool, as_text: bool, overlay: Path | None) -> None:
    """Read the text of images and PDFs, in this process.

    Of several files each text comes below a line with the file's name. Exit code 1 if a file or a page could not be
    read; the others are printed.
    """
    if as_json and as_text:
        raise click.UsageError("give --json or --text")
    try:
        from tasks.ocr.limits import DocumentLimits  # noqa: PLC0415 - its libraries are an extra
        from tasks.ocr.reader import PageReader  # noqa: PLC0415
        from tasks.ocr.serving import find_profile  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise Unfit(f"`batchmill ocr` needs the package {error.name}: pip install 'batchmill[ocr]'") from error
    reader = PageReader(find_profile(load(ocr_model=ocr_model)))
    printer = JsonLines() if as_json else Texts(has_headings=len(files) > 1)
    failed = False
    for file in files:
        for page in _pages(file, reader, DocumentLimits()):
            failed |= page.error is not None
            printer.show(page)
            if overlay is not None and page.read is not None:
                _draw(page, overlay)
                overlay = None
    if failed:
        exit_failed()


def _pages(file: Path, reader: PageReader, limits: DocumentLimits) -> Iterator[Read]:
    from tasks.ocr.decoder import Decoder  # noqa: PLC0415 - as above

    with Decoder(limits) as decoder:
        try:
            document = decoder.open(_content(file))
        except ItemFailed as error:
            yield Read(str(file), 0, None, None, error)
            return
        for index in range(document.pages):
            try:
                image = document.page(index).image
                yield Read(str(file), index + 1, reader.read(image), image, None)
            except ItemFailed as error:
                yield Read(str(file), index + 1, None, None, error)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ItemFailed(ErrorCode.OBJECT_NOT_FOUND, f"the file cannot be read ({error.strerror})") from error


class JsonLines:
    """A line a page on standard output, whether it could be read or not."""

    def show(self, page: Read) -> None:
        """Print a page."""
        click.echo(_as_json(page))


class Texts:
    """Texts on standard output, what could not be read on standard error.

    Args:
        has_headings: begin the text of each file with a line that names it, as `head` does.
    """

    def __init__(self, *, has_headings: bool) -> None:
        self._has_headings = has_headings
        self._last: str | None = None

    def show(self, page: Read) -> None:
        """Print a page; the pages of a file come one after the other."""
        if page.read is None:
            click.echo(_as_failure(page), err=True)
            return
        if self._has_headings and page.file != self._last:
            if self._last is not None:
                click.echo()
            click.echo(f"==> {page.file} <==")
            self._last = page.file
        click.echo(page.read.text)


def _as_failure(page: Read) -> str:
    where = page.file if page.page == 0 else f"{page.file}, page {page.page}"
    return f"{where}: {page.error.code}: {page.error.message}" if page.error else where


def _as_json(page: Read) -> str:
    fields: dict[str, object] = {"file": page.file, "page": page.page}
    if page.read is None:
        fields["error"] = page.error.as_dict() if page.error else None
        return json.dumps(fields)
    lines = [
        {"text": line.text, "confidence": round(line.score, 4), "box": line.corners.round(1).tolist()}
        for line in page.read.lines
    ]
    size = {"width": page.read.width, "height": page.read.height, "rotation": page.read.rotation}
    return json.dumps(fields | size | {"lines": lines, "text": page.read.text}, ensure_ascii=False)


def _draw(page: Read, path: Path) -> None:
    from tasks.ocr.overlay import overlaid_png  # noqa: PLC0415 - as above

    if page.read is not None:
        path.write_bytes(overlaid_png(page.image, page.read))
