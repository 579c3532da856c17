"""The change feed, on a terminal or in a pipe."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence

import click

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.formatting import output_option
from fabric_manager.client import FabricEvent, FabricManager

SHOWN_DEFAULT = 100
PAGE_ITEMS = 1000
WATCH_RETRY_S = 300.0


@click.command()
@click.option("--watch", is_flag=True, help="Go on with what happens next, until Ctrl-C.")
@click.option("--since", type=click.IntRange(min=0), help="Those numbered above this one; else the last 100.")
@click.option("--kind", "kinds", multiple=True, help="Only of this kind of object, like allocation. May be repeated.")
@click.option("--key", help="Only about this allocation.")
@click.option("--host", help="Only about this host.")
@click.option("--pool", help="Only about this pool.")
@click.option("--device", help="Only about this device.")
@output_option
@asking
async def events(
    manager: FabricManager,
    *,
    watch: bool,
    since: int | None,
    kinds: Sequence[str],
    output: str,
    **filters: str | None,
) -> None:
    """Show changes, each with its number: --since that number resumes."""
    where = {name: value for name, value in filters.items() if value is not None}
    if since is None:
        since = max(await manager.events.head() - SHOWN_DEFAULT, 0)
    async for event in _until_now(manager, since, kinds, where):
        click.echo(event_line(event, output))
        since = event.seq
    if watch:
        async for event in manager.events.follow(since=since, kinds=kinds, where=where, retry_s=WATCH_RETRY_S):
            click.echo(event_line(event, output))


async def _until_now(
    manager: FabricManager, since: int, kinds: Sequence[str], where: Mapping[str, str]
) -> AsyncIterator[FabricEvent]:
    """Those up to the first page's head: what happens meanwhile is not chased."""
    end: int | None = None
    while end is None or since < end:
        page = await manager.events.page(since=since, kinds=kinds, where=where, limit=PAGE_ITEMS)
        end = page.as_of if end is None else end
        for event in page.items:
            yield event
        if page.next_since <= since:
            return
        since = page.next_since  # it moves on also where nothing was found yet


def event_line(event: FabricEvent, output: str) -> str:
    """One line (for YAML, one document): whoever reads a stream can take one event at a time."""
    if output == "json":
        return json.dumps(event.document, ensure_ascii=False)
    if output == "yaml":
        return "---\n" + formatting.as_yaml(event.document)
    if output == "name":
        return str(event.seq)
    at = event.at.strftime("%Y-%m-%d %H:%M:%S")
    what = event.key or f"{event.object_kind} {event.object_id}"
    by = f"{event.actor} ({event.cause})" if event.cause else event.actor
    return f"{event.seq:>7}  {at}  {event.type:<24}  {what}  {formatting.facts(event.after or {})}  by {by}"
