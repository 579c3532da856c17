"""What would happen to a request, and why: a dry run told as a story."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import click

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.failures import EXIT_PROBLEM, NEXT_BY_VERDICT
from fabric_manager.cli.order import order_from, order_options
from fabric_manager.cli.proof import scripted_option
from fabric_manager.client import AllocationRequest, Candidates, Document, FabricManager

CANDIDATES_SHOWN = 10

# What it means for a device to have passed a filter.
PASSED: Mapping[str, str] = {
    "known": "known to the service",
    "healthy": "healthy",
    "enabled": "enabled for new allocations, and not kept for others",
    "reachable": "on a switch that the host has a port on",
    "attachable": "with a free place on that host's side",
    "pool": "in the pool, or the device or kind, that was asked for",
    "capable": "able to erase memory before it is handed on",
    "isolation": "apart from other tenants as asked",
    "qos": "with bandwidth left to promise",
    "quota": "within the tenant's quota",
    "space": "with room for it",
    "affinity": "near, or away from, what was named",
}

OF_A_HOST = frozenset({"reachable", "attachable"})

NEXT_BY_CODE: Mapping[str, str] = {
    "no_matching_device": "Leave out --pool, --device or --label, or see what there is: `fabric-manager get devices`.",
    "not_reachable_from_host": "Name another host, or see what hangs where: `fabric-manager topology`.",
    "host_limit_reached": "Name another host, or release something that this one holds.",
    "device_failed": "See `fabric-manager alarms`.",
    "isolation_unsatisfiable": "Name a pool whose devices can erase memory.",
    "fabric_unreachable": "See `fabric-manager doctor`; then try again.",
    "quota_exceeded": "Release something of this tenant, or have its quota raised.",
}


@click.command()
@click.option("--key", hidden=True, help="Not used: nothing is stored.")
@order_options
@click.option("--wait", hidden=True, help="Not used: nothing is waited for.")
@scripted_option
@asking
async def explain(manager: FabricManager, *, output: str, key: str | None, wait: str | None, **wanted: Any) -> None:
    """Show where a request would go now and why, or why not and what to do. Nothing is written.

    Takes the options of `allocate`. Exit code 1 when it would be refused.
    """
    del key, wait  # so that a command line of `allocate` can be tried by changing one word
    request = order_from(**wanted)
    found = await manager.allocations.candidates(request)
    if output == "table":
        click.echo("\n".join(story(request, found)))
    else:
        click.echo(formatting.scripted(found.document, output))
    if found.refusal is not None:
        raise click.exceptions.Exit(EXIT_PROBLEM)


def story(request: AllocationRequest, found: Candidates) -> Iterator[str]:
    target = f" on {request.host}" if request.host else ""
    wish = f"{formatting.size(request.size_bytes)} for {request.tenant}{target}"
    if found.refusal is None:
        best, number = found.candidates[0].device, len(found.candidates)
        yield f"{wish} would go to {best}, the first of {number} that could hold it:"
        yield ""
        yield from _ranking(found)
        yield ""
        yield from _funnel(request, found.document["funnel"])
        return
    yield f"{wish} would be refused: {found.refusal['code']}."
    yield f"  {found.refusal['detail']}"
    yield ""
    yield from _funnel(request, found.document["funnel"])
    yield ""
    yield "What to do next:"
    yield from (f"  - {line}" for line in _next(request, found.refusal))


def _ranking(found: Candidates) -> Iterator[str]:
    headers = ("RANK", "DEVICE", "POOL", "GRANTED", "WASTE", "FREE", "LATENCY", "WHY")
    rows = (
        (
            str(each.rank),
            each.device,
            each.pool,
            formatting.size(each.granted_bytes),
            formatting.size(each.waste_bytes),
            formatting.size(each.free_bytes),
            f"{each.latency_ns} ns",
            each.why,
        )
        for each in found.candidates[:CANDIDATES_SHOWN]
    )
    yield formatting.table(headers, rows)
    if len(found.candidates) > CANDIDATES_SHOWN:
        yield f"and {len(found.candidates) - CANDIDATES_SHOWN} more (-o json shows all)"


def _funnel(request: AllocationRequest, funnel: Sequence[Document]) -> Iterator[str]:
    yield "How many devices each step left:"
    steps = [{"filter": "", "left": None}, *funnel]
    rows: list[tuple[str, str, str]] = []
    for before, step in pairwise(steps):
        if step["filter"] in OF_A_HOST and request.host is None:
            continue
        removed = 0 if before["left"] is None else before["left"] - step["left"]
        rows.append((str(step["left"]), PASSED.get(step["filter"], step["filter"]), f"-{removed}" if removed else ""))
        if step["left"] == 0:
            break  # nobody was left to look at further
    yield from ("  " + line for line in formatting.table(("LEFT", "THAT ARE", "LESS"), rows).splitlines())


def _next(request: AllocationRequest, refusal: Document) -> Iterator[str]:
    largest_bytes = refusal["largest_fit_bytes"]
    out_of_room = refusal["code"] in ("insufficient_capacity", "fragmentation")
    if refusal["waiting_helps"]:
        yield "Wait: memory that is being given back will be enough. Ask again in a moment."
    if out_of_room and 0 < largest_bytes < request.size_bytes:
        yield f"Ask for {formatting.size(largest_bytes)} or less; several smaller allocations may fit."
    if out_of_room and (request.pool or request.device):
        yield "Leave out --pool and --device, so that others are looked at too."
    if refusal["code"] in NEXT_BY_CODE:
        yield NEXT_BY_CODE[refusal["code"]]
    if refusal["retryable"] and not refusal["waiting_helps"]:
        yield "Ask again in a moment."
    elif verdict := NEXT_BY_VERDICT.get(refusal["terminal_for"] or ""):
        yield verdict
