"""Commands for what people declare: the whole inventory as a file, and devices that are to get nothing new."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import asking
from fabric_manager.client import Change, Document, FabricManager

NOTHING_TO_DO = "Everything is as the file says."


@click.command()
@click.option(
    "-f",
    "--file",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="YAML as `export` writes it, or a topology file; - is standard input.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@asking
async def apply(manager: FabricManager, *, path: Path, dry_run: bool) -> None:
    """Bring the inventory to what a file says: all of it, or, if anything is refused, nothing.

    What the file does not name is left alone.
    """
    inventory = inventory_in(path)
    planned = await manager.inventory.apply(inventory, dry_run=True)
    click.echo(diff_table(planned) if planned else NOTHING_TO_DO)
    if planned and not dry_run:
        done = await manager.inventory.apply(inventory)
        if done != planned:
            click.echo(f"Somebody else changed something meanwhile; this is what was done:\n{diff_table(done)}")
        click.echo(summary(done))


@click.command()
@asking
async def export(manager: FabricManager) -> None:
    """Print all that was declared, as YAML that `apply` takes."""
    whole = await manager.inventory.export()
    click.echo(
        formatting.as_yaml(
            {noun: [{"name": each["name"], **each} for each in things] for noun, things in whole.items()}
        )
    )


@click.command()
@click.argument("device")
@asking
async def cordon(manager: FabricManager, *, device: str) -> None:
    """Let a device get nothing new; it keeps what it has."""
    click.echo(f"{device}: {(await manager.inventory.cordon(device))['admin_state']}")


@click.command()
@click.argument("device")
@asking
async def uncordon(manager: FabricManager, *, device: str) -> None:
    """Let a cordoned device get something again."""
    click.echo(f"{device}: {(await manager.inventory.uncordon(device))['admin_state']}")


def inventory_in(path: Path) -> Document:
    """The inventory in a file: the document itself, or the part of that name of a topology file."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error
    inventory = content.get("inventory", content) if isinstance(content, dict) else None
    if not isinstance(inventory, dict):
        raise click.UsageError(f"{path} holds no inventory: write fabrics, pools, devices and hosts, each as a list")
    return inventory


def diff_table(changes: Sequence[Change]) -> str:
    return formatting.table(("ACTION", "WHAT", "FIELD", "HAVE", "WANT"), _diff_rows(changes))


def _diff_rows(changes: Sequence[Change]) -> Iterator[tuple[str, ...]]:
    """A row for each field that something is said of; what is new has its name in front."""
    for change in changes:
        first = (change.action, f"{change.noun} {change.name}")
        for field in change.fields:
            have, want = _shown(field.field, field.have), _shown(field.field, field.want)
            if have != want and not (field.field == "name" and change.action == "create"):
                yield (*first, field.field, have, want)
                first = ("", "")
        if first[0]:
            yield (*first, formatting.NOTHING, formatting.NOTHING, formatting.NOTHING)


def _shown(name: str, content: Any) -> str:
    return formatting.NOTHING if content in ({}, []) else formatting.value(name, content)


def summary(changes: Sequence[Change]) -> str:
    made = sum(change.action == "create" for change in changes)
    return f"Done: {made} created, {len(changes) - made} changed."
