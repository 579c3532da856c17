"""Commands that show what happened and that it is right."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version as installed_version

import click

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.failures import EXIT_PROBLEM
from fabric_manager.client import Document, FabricManager, Timeline, TimelineEntry

SHOWN = {
    "step": ("component", "outcome"),
    "frame": ("component", "opcode", "return_code"),
    "evidence": ("device", "size_bytes"),
}

scripted_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)


@click.command()
@click.argument("key")
@scripted_option
@asking
async def timeline(manager: FabricManager, *, key: str, output: str) -> None:
    """Tell what happened to a key, from the request to the commands on the wire."""
    story = await manager.allocations.timeline(key)
    click.echo(timeline_table(story) if output == "table" else formatting.scripted(story.document, output))


@click.command()
@scripted_option
@asking
async def invariants(manager: FabricManager, *, output: str) -> None:
    """Check the service's promises on its live database. Exit code 1 when one is broken."""
    found = await manager.invariants()
    if output != "table":
        click.echo(formatting.scripted(found.document, output))
    else:
        broken = {each.name for each in found.violations}
        rows = [(each.name, str(each.examined), "BROKEN" if each.name in broken else "holds") for each in found.checks]
        click.echo(formatting.table(("CHECK", "EXAMINED", "RESULT"), rows))
        for each in found.violations:
            click.echo(f"{each.name}: {each.detail}: {formatting.value('objects', each.objects)}")
    if found.violations:
        raise click.exceptions.Exit(EXIT_PROBLEM)


@click.command()
@scripted_option
@asking
async def version(manager: FabricManager, *, output: str) -> None:
    """Show the version of this command and of the service."""
    both = {"command": {"version": installed_version("fabric-manager")}, "service": dict(await manager.version())}
    if output == "table":
        click.echo("\n".join(f"{name}: {formatting.facts(document)}" for name, document in both.items()))
    else:
        click.echo(formatting.scripted(both, output))


def timeline_table(story: Timeline) -> str:
    text = formatting.table(("AT", "AFTER", "KIND", "WHAT", "FACTS"), _timeline_rows(story.entries))
    return text + ("\n(the latest part of a longer story)" if story.truncated else "")


def _timeline_rows(entries: Sequence[TimelineEntry]) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        after_ms = (entry.at - entries[0].at).total_seconds() * 1000
        at = entry.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        yield at, f"+{after_ms:.0f} ms", entry.kind, entry.title, formatting.facts(_telling(entry))


def _telling(entry: TimelineEntry) -> Document:
    """The facts that fit a line: what an event changed and who did it, of other kinds the ones in SHOWN."""
    if entry.kind == "event":
        shown = {**(entry.facts.get("after") or {}), "by": entry.facts.get("actor"), "cause": entry.facts.get("cause")}
    else:
        shown = {name: entry.facts[name] for name in SHOWN.get(entry.kind, entry.facts) if name in entry.facts}
    if isinstance(shown.get("opcode"), int):
        shown["opcode"] = f"{shown['opcode']:04x}h"
    return shown
