"""The guide's claim, told over the public interface."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from fabric_manager.cli.connection import read_token
from fabric_manager.cli.failures import explain
from fabric_manager.cli.parameters import FILE, setting_option
from fabric_manager.cli.proof import timeline_table
from fabric_manager.cli.serve import data_dir_option, host_option, port_option, settings_from, told_in_a_sentence
from fabric_manager.client import (
    Allocation,
    AllocationRequest,
    ClientError,
    Consumer,
    FabricManager,
    Placed,
    ProblemError,
    SegmentState,
)
from fabric_manager.domain.units import GiB, format_size

KEY = "demo:analytic-memory-claim"
BOOT_ID = "6b1d3a52-7c0e-4f6a-9a53-0d5c1f1e0003"  # the same at each start: the host of the story never reboots
WAIT_S = 30
REQUEST = AllocationRequest(
    tenant="analytics",
    size_bytes=64 * GiB,
    pool="high-performance",
    host="node-3",
    consumer=Consumer(
        kind="ResourceClaim",
        cluster="demo",
        namespace="default",
        name="analytic-memory-claim",
        uid="7c9e6679-7425-40de-944b-e07fc1f90ae7",
    ),
)

Say = Callable[[str], None]


@click.command()
@host_option
@port_option
@data_dir_option
@setting_option("topology", type=FILE)
def demo(topology: Path | None, **options: Any) -> None:
    """Start the service over a simulated rack, run one claim through it, and serve until Ctrl-C."""
    from fabric_manager import app  # noqa: PLC0415  every other command starts without the web framework

    settings = settings_from({"topology": topology or app.example_rack(), **options})
    with told_in_a_sentence():
        app.serve(replace(settings, database_url=None, role="all"), when_ready=partial(tell, click.echo))


async def tell(say: Say, url: str, token_file: Path) -> None:
    """The story, and where to go from it. A story that ends badly is explained; the service stays."""
    async with FabricManager(url, read_token(token_file)) as manager:
        try:
            await story(manager, say)
        except ClientError as error:
            say(explain(error))
    say(what_next(url, token_file))


async def story(manager: FabricManager, say: Say) -> None:
    say(f"The claim {KEY}: {format_size(REQUEST.size_bytes)} of {REQUEST.pool} memory for {REQUEST.host}.")
    try:
        placed = await manager.allocations.put(KEY, REQUEST, wait_s=WAIT_S)
    except ProblemError as problem:
        if problem.code != "released":
            raise
        say("  It was released, and a released key is not given out again. This is how it went:")
    else:
        allocation = await _bring_online(manager, placed, say)
        say(f"  {where(allocation)}; phase {allocation.phase}.")
        if allocation.failure:
            say(f"  {allocation.failure.code}: {allocation.failure.detail}")
        if placed.replayed:
            say("  The key was here before: everything is as it was. This is how it got there:")
    say("")
    say(timeline_table(await manager.allocations.timeline(KEY)))


async def _bring_online(manager: FabricManager, placed: Placed, say: Say) -> Allocation:
    """Play the node: memory that the switch gave it is reported online."""
    allocation = placed.allocation
    if allocation.phase != "bound":
        return allocation
    say(f"  Bound: the switch shows it to {allocation.host}. The node reports it online.")
    segments = [SegmentState(id=each.id, phase="online") for each in allocation.segments]
    return await manager.allocations.node_state(KEY, boot_id=BOOT_ID, segments=segments)


def where(allocation: Allocation) -> str:
    parts = []
    for segment in allocation.segments:
        place = segment.device
        if segment.logical_device is not None:
            place += f" logical device {segment.logical_device}"
        if segment.binding is not None:
            at = segment.binding
            place += f", on {at.switch} VCS {at.vcs} vPPB {at.vppb}"
        parts.append(place)
    return f"{format_size(allocation.granted_bytes)} on {'; '.join(parts)}"


def what_next(url: str, token_file: Path) -> str:
    command = f"{sys.argv[0]} {{}} --server {url} --token-file {token_file}"
    return "\n".join(
        [
            "",
            f"The interface, to try out   {url}/docs",
            f"The token it asks for       {token_file}",
            "In another terminal:",
            *(
                f"  {command.format(each)}"
                for each in (
                    "get devices",
                    f"get allocations {KEY}",
                    f"timeline {KEY}",
                    "events --watch",
                    "invariants",
                    f"release {KEY}",
                )
            ),
            "Ctrl-C stops everything that was started; the next start finds it as it was.",
        ]
    )
