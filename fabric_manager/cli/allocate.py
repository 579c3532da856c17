"""Commands that change what a key holds."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import click

from fabric_manager.cli import columns, formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.failures import EXIT_PROBLEM
from fabric_manager.cli.formatting import output_option
from fabric_manager.cli.order import order_from, order_options
from fabric_manager.cli.progress import at_a_terminal, telling
from fabric_manager.client import ENDS, Allocation, FabricManager

HOLD_S_MAX = 30
RELEASE_WAIT_S_MAX = 600
HOST_HAS_IT = frozenset({"bound", "online"})
NEEDS_SOMEBODY = frozenset({"release_blocked", "quarantined"})


@click.command()
@click.option("--key", help="Yours to choose; asking twice with one key gives one allocation. Else one is made.")
@order_options
@click.option("--wait", "wait_s", type=click.IntRange(min=0), default=0, help="Seconds to wait until it is there.")
@output_option
@asking
async def allocate(
    manager: FabricManager,
    *,
    key: str | None,
    wait_s: int,
    output: str,
    **wanted: Any,
) -> None:
    """Reserve memory and, with --host, bind it."""
    request = order_from(**wanted)
    hold_s = 0 if at_a_terminal() else min(wait_s, HOLD_S_MAX)  # who watches is told meanwhile how far it is
    if key is None:
        placed = await manager.allocations.create(request, idempotency_key=uuid4().hex, wait_s=hold_s)
    else:
        placed = await manager.allocations.put(key, request, wait_s=hold_s)
    allocation = placed.allocation
    hoped_for = HOST_HAS_IT if request.host and request.bind is not False else HOST_HAS_IT | {"reserved"}
    if wait_s > hold_s and allocation.phase not in hoped_for | ENDS:
        async with telling(manager, allocation.key):
            allocation = await manager.allocations.wait_for(allocation.key, hoped_for, wait_s=wait_s - hold_s)
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
        async with telling(manager, key):
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
