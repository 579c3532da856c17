"""Reading what is there."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from fabric_manager.cli import columns, formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.formatting import output_option
from fabric_manager.cli.parameters import PAIR
from fabric_manager.client import NOUNS, FabricManager


@click.command()
@click.argument("noun", type=click.Choice(NOUNS))
@click.argument("name", required=False, metavar="[ID]")
@click.option("--filter", "filters", type=PAIR, multiple=True, help="Only those where it is so, like phase=bound.")
@output_option
@asking
async def get(
    manager: FabricManager, *, noun: str, name: str | None, filters: Sequence[tuple[str, str]], output: str
) -> None:
    """Show one object, by key, name or id, or all of a kind."""
    if name and filters:
        raise click.UsageError("name one object or filter all, not both")
    found = await (manager.noun(noun).get(name) if name else manager.noun(noun).list(dict(filters)))
    if output == "table":
        documents = found if isinstance(found, list) else [found]
        click.echo(columns.rows(noun, documents, datetime.now(UTC)))
    elif found or output != "name":
        click.echo(formatting.scripted(found, output))
