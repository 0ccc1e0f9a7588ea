"""`batchmill options`: every option, generated from the settings."""

import click

from worker.metrics import metrics_table
from worker.options import options_table


@click.command()
@click.option("--metrics", is_flag=True, help="Print the table of all metrics instead, as docs/metrics.md holds it.")
def options(*, metrics: bool) -> None:
    """Print the table of all options, as docs/configuration.md holds it."""
    click.echo(metrics_table() if metrics else options_table(), nl=False)
