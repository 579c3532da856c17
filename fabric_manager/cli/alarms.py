"""What is so now and wants somebody's eyes."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import click

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.formatting import output_option
from fabric_manager.client import Document, FabricManager

HEADERS = ("SEVERITY", "ALARM", "ABOUT", "SINCE", "DETAIL", "RUNBOOK")


@click.command()
@output_option
@asking
async def alarms(manager: FabricManager, *, output: str) -> None:
    """Show open conditions, the critical ones first, with their age and what to read about them."""
    document = await manager.alarms()
    found = sorted(document["items"], key=lambda each: each["severity"] != "critical")
    if output == "name":
        for each in found:
            click.echo(f"{each['kind']} {each['object']}")
    elif output != "table":
        click.echo(formatting.scripted(document, output))
    elif not found:
        click.echo("No alarm is open.")
    else:
        click.echo(formatting.table(HEADERS, alarm_rows(found)))
    if output == "table" and document.get("truncated"):
        click.echo(f"There are more of {', '.join(document['truncated'])} than are shown.", err=True)


def alarm_rows(found: Sequence[Document]) -> Iterator[Sequence[str]]:
    for each in found:
        yield (
            each["severity"],
            each["kind"],
            f"{each['object_kind']} {each['object']}",
            formatting.span(timedelta(seconds=each["age_s"])),
            each["detail"],
            formatting.value("runbook", each.get("runbook")),
        )
