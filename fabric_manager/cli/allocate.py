"""Commands that change what a key holds."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from fabric_manager.cli import columns, formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.failures import EXIT_PROBLEM
from fabric_manager.cli.formatting import output_option
from fabric_manager.cli.parameters import PAIR, SIZE
from fabric_manager.client import Allocation, AllocationRequest, FabricManager

HOLD_S_MAX = 30
RELEASE_WAIT_S_MAX = 600
HOST_HAS_IT = frozenset({"bound", "online"})
NEEDS_SOMEBODY = frozenset({"release_blocked", "quarantined"})


@click.command()
@click.option("--key", required=True, help="Yours to choose; asking twice with one key gives one allocation.")
@click.option("--tenant", required=True, help="Who is charged for it.")
@click.option(
    "--size", "size_bytes", required=True, type=SIZE, metavar="64GiB", help="With one of TiB, GiB, MiB, KiB, B."
)
@click.option("--pool", help="Only from this pool.")
@click.option("--device", help="Only from this device.")
@click.option("--host", help="Bind it to this host.")
@click.option("--no-bind", is_flag=True, help="Reserve only; bind it later.")
@click.option("--wait", "wait_s", type=click.IntRange(min=0), default=0, help="Seconds to wait until it is there.")
@click.option("--label", "labels", type=PAIR, multiple=True)
@output_option
@asking
async def allocate(
    manager: FabricManager, *, key: str, no_bind: bool, wait_s: int, output: str, labels: Sequence[Any], **wanted: Any
) -> None:
    """Reserve memory and, with --host, bind it."""
    if wanted["pool"] and wanted["device"]:
        raise click.UsageError("name a pool or a device, not both")
    request = AllocationRequest(bind=False if no_bind else None, labels=dict(labels), **wanted)
    allocation = (await manager.allocations.put(key, request, wait_s=wait_s)).allocation
    hoped_for = HOST_HAS_IT if request.host and not no_bind else HOST_HAS_IT | {"reserved"}
    if wait_s > HOLD_S_MAX and allocation.phase not in hoped_for:
        allocation = await manager.allocations.wait_for(key, hoped_for, wait_s=wait_s - HOLD_S_MAX)
    show(allocation, output)
    if allocation.failure or (wait_s and allocation.phase not in hoped_for):
        say_why(allocation)
        raise click.exceptions.Exit(EXIT_PROBLEM)


@click.command()
@click.argument("key")
@click.option("--wait", is_flag=True, help="Until the bytes are free, or somebody has to act; at most 10 minutes.")
@asking
async def release(manager: FabricManager, *, key: str, wait: bool) -> None:
    """Give memory back. It is free once the host let go and it is erased."""
    allocation = await manager.allocations.delete(key)
    if allocation and wait:
        stops = {"released", *NEEDS_SOMEBODY}
        allocation = await manager.allocations.wait_for(key, stops, wait_s=RELEASE_WAIT_S_MAX)
    click.echo(f"{key}: {allocation.phase if allocation else 'released'}")
    if allocation and allocation.phase in NEEDS_SOMEBODY:
        say_why(allocation)
    if wait and allocation and allocation.phase != "released":
        raise click.exceptions.Exit(EXIT_PROBLEM)


@click.command()
@click.argument("key")
@click.option("--host", required=True)
@output_option
@asking
async def bind(manager: FabricManager, *, key: str, host: str, output: str) -> None:
    """Give reserved memory to a host."""
    show(await manager.allocations.bind(key, host=host), output)


@click.command()
@click.argument("key")
@output_option
@asking
async def unbind(manager: FabricManager, *, key: str, output: str) -> None:
    """Take memory from its host and keep it reserved."""
    show(await manager.allocations.unbind(key), output)


def show(allocation: Allocation, output: str) -> None:
    if output == "table":
        click.echo(columns.rows("allocations", [allocation.document], datetime.now(UTC)))
    else:
        click.echo(formatting.scripted(allocation.document, output))


def say_why(allocation: Allocation) -> None:
    """On stderr: what keeps it from where it was wanted."""
    if allocation.failure:
        click.echo(f"{allocation.key} is {allocation.phase}: {allocation.failure.code}", err=True)
        click.echo(f"  {allocation.failure.detail}", err=True)
    else:
        click.echo(f"{allocation.key} is {allocation.phase}", err=True)
        for condition in allocation.conditions:
            click.echo(f"  {condition.type} {condition.status}: {condition.message}", err=True)
