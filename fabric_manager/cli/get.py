"""Reading what is there."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click

from fabric_manager.cli import columns, formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.formatting import wide_output_option
from fabric_manager.cli.parameters import PAIR
from fabric_manager.cli.watching import changed
from fabric_manager.client import NOUNS, Document, FabricManager


@click.command()
@click.argument("noun", type=click.Choice(NOUNS))
@click.argument("name", required=False, metavar="[ID]")
@click.option("--filter", "filters", type=PAIR, multiple=True, help="Only those where it is so, like phase=bound.")
@click.option("--watch", is_flag=True, help="Then print each that changes, until Ctrl-C.")
@wide_output_option
@asking
async def get(
    manager: FabricManager,
    *,
    noun: str,
    name: str | None,
    filters: Sequence[tuple[str, str]],
    watch: bool,
    output: str,
) -> None:
    """Show one object, by key, name or id, or all of a kind."""
    if name and filters:
        raise click.UsageError("name one object or filter all, not both")
    if watch:
        await _watch(manager, noun, name, dict(filters), output)
        return
    found = await (manager.noun(noun).get(name) if name else manager.noun(noun).list(dict(filters)))
    if output in ("table", "wide"):
        documents = found if isinstance(found, list) else [found]
        click.echo(columns.rows(noun, documents, datetime.now(UTC), wide=output == "wide"))
    elif found or output != "name":
        click.echo(formatting.scripted(found, output))


async def _watch(manager: FabricManager, noun: str, name: str | None, filters: Mapping[str, str], output: str) -> None:
    if output not in ("table", "wide"):
        async for documents in changed(manager, noun, name, filters):
            for document in documents:
                click.echo(_one(document, output))
        return
    shown = columns.Rolling(noun, wide=output == "wide")
    async for documents in changed(manager, noun, name, filters):
        for line in shown.lines(documents, datetime.now(UTC)):
            click.echo(line)


def _one(document: Document, output: str) -> str:
    """One line (for YAML, one document): whoever reads a stream can take one at a time."""
    if output == "json":
        return json.dumps(document, ensure_ascii=False)
    if output == "yaml":
        return "---\n" + formatting.as_yaml(document)
    return formatting.name_of(document)
