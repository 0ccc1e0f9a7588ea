"""`batchmill bulk classify`: plan a run on a worker, and follow it if asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from schemas.bulk import parse_bulk_classify
from schemas.messages import Truncation
from tasks.commands.bulk_failures import run_reported
from tasks.commands.bulk_request import EXIT_CODES, carry_out, given_fields, part_options, run_options

if TYPE_CHECKING:
    from schemas.bulk import BulkClassify


@click.command(epilog=EXIT_CODES)
@click.option(
    "--input", "inputs", multiple=True, required=True, help="File, directory or glob; s3://… or a path. Repeatable."
)
@click.option("--output", required=True, help="Prefix or directory of this run alone.")
@click.option("--text", help="Column of the whole text.")
@click.option("--subject", help="Column of the subject line, instead of --text.")
@click.option("--body", help="Column of what follows the subject line.")
@click.option("--id", "id", help="Column that names a row in the rejects.")
@click.option("--model", help="The model to ask; the worker's own by default. With --plan: the model to load.")
@click.option("--top-k", type=int, help="How many labels to keep in `scores`, best first.")
@click.option("--threshold", type=float, help="Of a multi-label model: the score from which a label counts.")
@click.option("--truncation", type=click.Choice(get_args(Truncation)), help="What is kept of a text that is too long.")
@click.option("--no-dedupe", is_flag=True, help="Run a text as often as a shard has it.")
@part_options
@run_options
@run_reported
def classify(**flags: Any) -> None:  # noqa: ANN401 - the request's own, and those of `carry_out`
    """Label the rows of files: Parquet, CSV or JSONL in, Parquet out.

    A worker plans the run and cuts it into shards, which any worker of the queue `bulk` labels. The result stands once
    OUTPUT has manifest.json and _SUCCESS. The same command again finds what is done and does the rest, so a CronJob may
    repeat it.
    """
    carry_out(request_of, flags)


def request_of(fields: dict[str, Any]) -> BulkClassify:
    """Return the request that flags make, its paths absolute, as every worker is to mean them.

    Raises:
        MessageError: the contract forbids it.
        BadLocation: an address is of a kind that nothing here reads.
    """
    given = given_fields(fields)
    if given.pop("no_dedupe", False):
        given["dedupe"] = False
    return parse_bulk_classify((), given)
