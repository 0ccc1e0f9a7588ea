"""`batchmill options`: every option, generated from the settings."""

import click

from worker.settings import options_table


@click.command()
def options() -> None:
    """Print the table of all options, as docs/configuration.md holds it."""
    click.echo(options_table(), nl=False)
