"""`batchmill bulk ocr`: plan a run that reads documents on a worker, and follow it if asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from schemas.bulk_ocr import parse_bulk_ocr
from tasks.commands.bulk_failures import run_reported
from tasks.commands.bulk_request import EXIT_CODES, carry_out, given_fields, part_options, run_options

if TYPE_CHECKING:
    from schemas.bulk_ocr import BulkOcr


@click.command(epilog=EXIT_CODES)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    help="Tables, with --uri or --content; else the documents: file, directory or glob; s3://… or a path. Repeatable.",
)
@click.option("--output", required=True, help="Prefix or directory of this run alone.")
@click.option("--uri", help="Column of the documents' addresses.")
@click.option("--content", help="Column of the documents themselves, binary or base64.")
@click.option("--id", "id", help="Column that names a document.")
@click.option("--first-page", type=int, help="First page to read of each document.")
@click.option("--last-page", type=int, help="Last page to read of each document.")
@click.option("--model", help="The OCR model to ask; the worker's own by default. With --plan: the model to load.")
@part_options
@run_options
@run_reported
def ocr(**flags: Any) -> None:  # noqa: ANN401 - the request's own, and those of `carry_out`
    """Read the text of documents: images and PDFs in, Parquet with a row for each page out.

    A worker plans the run and cuts it into shards, which any worker of the queue `bulk-ocr` reads. The result stands
    once OUTPUT has manifest.json and _SUCCESS. The same command again finds what is done and does the rest.
    """
    carry_out(request_of, flags)


def request_of(fields: dict[str, Any]) -> BulkOcr:
    """Return the request that flags make, its paths absolute, as every worker is to mean them.

    Raises:
        MessageError: the contract forbids it.
        BadLocation: an address is of a kind that nothing here reads.
    """
    return parse_bulk_ocr((), given_fields(fields))
