"""The sums at a glance, once or again and again."""

import asyncio
import sys
from collections.abc import Iterator
from datetime import timedelta

import click

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.proof import scripted_option
from fabric_manager.client import ClientError, Document, FabricManager

SIGNS = {"allocated": "#", "sanitizing": "~", "quarantined": "!", "withdrawn": "x"}
LEGEND = "  ".join(f"{sign} {bucket}" for bucket, sign in SIGNS.items()) + "  . free"
COLUMNS = ("POOL", "DEVICES", "", "USED", "FREE", "SANITIZING", "QUARANTINED", "CAPACITY")
CLEAR = "\x1b[2J\x1b[H"
BAR_WIDTH = 30


@click.command()
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--every", "every_s", type=click.FloatRange(0.5), default=2.0, show_default=True, help="Seconds.")
@scripted_option
@asking
async def top(manager: FabricManager, *, watch: bool, every_s: float, output: str) -> None:
    """Show how full the pools are, what was refused, and what has been under way the longest."""
    while True:
        try:
            document = await manager.summary()
        except ClientError as error:
            if not watch:
                raise
            _show(f"{error}\n(trying again)", clear=True)  # a watch outlives a restart of the service
        else:
            shown = "\n".join(lines(document)) if output == "table" else formatting.scripted(document, output)
            _show(shown, clear=watch and output == "table")
        if not watch:
            return
        await asyncio.sleep(every_s)


def _show(text: str, *, clear: bool) -> None:
    if clear and sys.stdout.isatty():
        click.echo(CLEAR, nl=False)
    click.echo(text)


def lines(summary: Document) -> Iterator[str]:
    rows = [_row(each["pool"] or "(no pool)", each) for each in summary["pools"]]
    if len(rows) != 1:
        rows.append(_row("total", summary["total"]))
    yield formatting.table(COLUMNS, rows)
    yield f"  {LEGEND}"
    yield ""
    counts = ("allocations", "operations", "fabrics", "hosts", "devices", "refusals")
    yield formatting.aligned({name: _counts(summary[name]) for name in counts})
    oldest = summary["oldest_operation"]
    if oldest is not None:
        age = formatting.span(timedelta(seconds=oldest["age_s"]))
        of = f" of {oldest['allocation']}" if oldest["allocation"] else ""
        yield f"oldest work:  {oldest['goal']}{of}, since {age}: {oldest['reason'] or 'not begun'}"


def _row(name: str, memory: Document) -> tuple[str, ...]:
    shares = [(sign, int(memory[f"{bucket}_bytes"])) for bucket, sign in SIGNS.items()]
    return (
        name,
        str(memory["devices"]),
        formatting.bar(shares, memory["capacity_bytes"], width=BAR_WIDTH),
        *(
            formatting.rough_size(memory[f"{bucket}_bytes"])
            for bucket in ("allocated", "free", "sanitizing", "quarantined", "capacity")
        ),
    )


def _counts(numbers: Document) -> str:
    return ", ".join(f"{number} {label}" for label, number in numbers.items()) or "none"
