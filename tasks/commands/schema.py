"""`batchmill schema`: the contract as files for producers in other languages."""

import json
from pathlib import Path

import click

from schemas import export


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the files there and print their paths.",
)
def schema(*, out: Path | None) -> None:
    """Write the JSON Schemas and the AsyncAPI document, or print them as one JSON object."""
    if out is None:
        click.echo(json.dumps(export.documents(), indent=2))
        return
    for path in export.write(out):
        click.echo(path)
