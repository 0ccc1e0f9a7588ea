"""`batchmill ocr`: the text of images and PDFs, without a broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tasks.commands.exits import exit_failed
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
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--model", "ocr_model", help="`accurate`, `latin`, `fast`, `tiny`, or a directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a page, with boxes and confidences.")
@click.option("--text", "as_text", is_flag=True, help="Print the text only; the default.")
@click.option("--overlay", type=click.Path(path_type=Path), help="Draw what was read over the first page, as PNG.")
@reported
def ocr(*, files: tuple[Path, ...], ocr_model: str | None, as_json: bool, as_text: bool, overlay: Path | None) -> None:
    """Read the text of images and PDFs, in this process.

    Exit code 1 if a file or a page could not be read; the others are printed.
    """
    if as_json and as_text:
        raise click.UsageError("give --json or --text")
    from tasks.ocr.limits import DocumentLimits  # noqa: PLC0415 - its libraries are an extra
    from tasks.ocr.reader import PageReader  # noqa: PLC0415
    from tasks.ocr.serving import find_profile  # noqa: PLC0415

    reader = PageReader(find_profile(load(ocr_model=ocr_model)))
    failed = False
    for file in files:
        for page in _pages(file, reader, DocumentLimits()):
            failed |= page.error is not None
            click.echo(_as_json(page) if as_json else _as_text(page), err=page.error is not None and not as_json)
            if overlay is not None and page.read is not None:
                _draw(page, overlay)
                overlay = None
    if failed:
        exit_failed()


def _pages(file: Path, reader: PageReader, limits: DocumentLimits) -> Iterator[Read]:
    from tasks.ocr.decoder import Decoder  # noqa: PLC0415 - as above

    with Decoder(limits) as decoder:
        try:
            document = decoder.open(file.read_bytes())
        except ItemFailed as error:
            yield Read(str(file), 0, None, None, error)
            return
        for index in range(document.pages):
            try:
                image = document.page(index).image
                yield Read(str(file), index + 1, reader.read(image), image, None)
            except ItemFailed as error:
                yield Read(str(file), index + 1, None, None, error)


def _as_text(page: Read) -> str:
    if page.read is None:
        return f"{page.file}, page {page.page}: {page.error.code}: {page.error.message}" if page.error else ""
    return page.read.text


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
