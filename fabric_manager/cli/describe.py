"""One object with all that belongs to it, ending in what happened to it last."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import click

from fabric_manager.cli import columns, formatting
from fabric_manager.cli.connection import asking
from fabric_manager.cli.past import latest_events, sentences
from fabric_manager.client import NOUNS, Condition, Document, FabricManager, Operation, Segment

HOLDERS_MAX = 50
ABBREVIATIONS: Mapping[str, str] = {"vppb": "vPPB", "vppbs": "vPPBs", "ld": "LD", "lds": "LDs", "vcs": "VCS"}
BUCKETS = ("capacity", "free", "allocated", "sanitizing", "quarantined", "withdrawn")
EVENT_FILTERS: Mapping[str, str] = {"allocations": "key", "devices": "device", "hosts": "host", "pools": "pool"}

Lines = AsyncIterator[str]


@click.command()
@click.argument("noun", type=click.Choice(NOUNS))
@click.argument("name", metavar="ID")
@asking
async def describe(manager: FabricManager, *, noun: str, name: str) -> None:
    """Show one object with what belongs to it and its latest events."""
    now = datetime.now(UTC)
    document = await manager.noun(noun).get(name)
    async for line in TOLD.get(noun, _of_anything)(manager, document, now):
        click.echo(line)
    if noun in EVENT_FILTERS:
        where = {EVENT_FILTERS[noun]: str(document["key" if noun == "allocations" else "name"])}
        click.echo("\nEvents:")
        for line in sentences(await latest_events(manager, where), now):
            click.echo(f"  {line}")


async def _of_anything(manager: FabricManager, document: Document, now: datetime) -> Lines:
    del manager
    yield facts(document, now)


async def _of_allocation(manager: FabricManager, document: Document, now: datetime) -> Lines:
    allocation = await manager.allocations.get(document["key"])
    yield formatting.aligned(
        {
            "Key": allocation.key,
            "Phase": allocation.phase,
            "Tenant": allocation.tenant,
            "Claim": formatting.value("claim", columns.claim(document)),
            "Size": f"{formatting.size(allocation.granted_bytes)} (asked for {formatting.size(allocation.size_bytes)})",
            "Pool": formatting.value("pool", allocation.pool),
            "Host": formatting.value("host", allocation.host),
            "QoS class": formatting.value("qos_class", document.get("qos_class")),
            "Isolation": formatting.value("isolation", document.get("isolation")),
            "Labels": formatting.facts(allocation.labels) or formatting.NOTHING,
            "Generation": str(allocation.generation),
            "Age": formatting.age(allocation.created_at, now),
            "Changed": f"{formatting.age(allocation.updated_at, now)} ago",
        }
    )
    yield "\nSegments:"
    for segment in allocation.segments:
        yield formatting.aligned(segment_facts(segment), indent="  ")
    yield "\nConditions:"
    headers = ("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
    yield indented(formatting.table(headers, _rows(allocation.conditions, now)))
    if allocation.failure is not None:
        yield "\nFailure:"
        yield f"  {allocation.failure.code}: {allocation.failure.detail}"
    if allocation.operation is not None:
        yield "\nOperation:"
        yield operation_text(await manager.operation(allocation.operation.id), now)


async def _of_device(manager: FabricManager, document: Document, now: datetime) -> Lines:
    yield facts({name: value for name, value in document.items() if not name.endswith("_bytes") or name in GRAINS}, now)
    yield "\nBytes:"
    yield buckets(document)
    yield "\nHeld by:"
    held = await _some(manager, {"device": document["name"]})
    yield indented(_holders(held, now))


async def _of_host(manager: FabricManager, document: Document, now: datetime) -> Lines:
    yield facts(document, now)
    yield "\nHolds:"
    yield indented(_holders(await _some(manager, {"host": document["name"]}), now))


async def _of_vcs(manager: FabricManager, document: Document, now: datetime) -> Lines:
    del manager
    yield facts({name: value for name, value in document.items() if name != "vppbs"}, now)
    yield "\nvPPBs:"
    headers = ("number", "state", "port", "ld_id", "attachment")
    rows = ([formatting.value(header, each[header]) for header in headers] for each in document["vppbs"])
    yield indented(formatting.table([_words(header).upper() for header in headers], rows))


async def _of_pool(manager: FabricManager, document: Document, now: datetime) -> Lines:
    del manager
    yield facts({name: value for name, value in document.items() if not name.endswith("_bytes") or name in GRAINS}, now)
    yield "\nBytes:"
    yield buckets(document)


GRAINS = frozenset({"granule_bytes", "allocation_step_bytes", "largest_fit_bytes"})
TOLD: Mapping[str, Callable[[FabricManager, Document, datetime], Lines]] = {
    "allocations": _of_allocation,
    "devices": _of_device,
    "hosts": _of_host,
    "pools": _of_pool,
    "vcs": _of_vcs,
}


async def _some(manager: FabricManager, filters: Mapping[str, str]) -> list[Document]:
    """Those that hold bytes, the first HOLDERS_MAX and one more."""
    found: list[Document] = []
    async for each in manager.noun("allocations").iterate(filters):
        if each["phase"] not in ("failed", "released"):
            found.append(each)
        if len(found) > HOLDERS_MAX:
            break
    return found


def _holders(held: Sequence[Document], now: datetime) -> str:
    if not held:
        return "nobody"
    text = columns.rows("allocations", held[:HOLDERS_MAX], now)
    return text + ("\nand more" if len(held) > HOLDERS_MAX else "")


def facts(document: Document, now: datetime) -> str:
    """Every field, in the service's order and words; times with how long ago they are."""
    return formatting.aligned({_words(name): _fact(name, value, now) for name, value in document.items()})


def _words(name: str) -> str:
    words = name.removesuffix("_bytes").removesuffix("_at").split("_")
    text = " ".join(ABBREVIATIONS.get(word, word) for word in words)
    return text if words[0] in ABBREVIATIONS else text[:1].upper() + text[1:]


def _fact(name: str, value: object, now: datetime) -> str:
    if name.endswith("_at") and isinstance(value, str):
        return f"{value} ({formatting.age(datetime.fromisoformat(value), now)} ago)"
    if value in ({}, []):
        return formatting.NOTHING
    if name == "ports" and isinstance(value, list):
        return columns.ports({"ports": value})
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if name == "fixed_sizes" and isinstance(value, list):
        return ", ".join(formatting.size(each) for each in value)
    return formatting.value(name, value)


def buckets(document: Document) -> str:
    sizes = {bucket: int(document[f"{bucket}_bytes"]) for bucket in BUCKETS}
    whole = sizes["capacity"] or 1
    rows = [
        (bucket, formatting.size(size), f"{100 * size / whole:.1f} %", formatting.bar((("#", size),), whole))
        for bucket, size in sizes.items()
        if bucket != "capacity"
    ]
    rows.append(("capacity", formatting.size(sizes["capacity"]), "", ""))
    return indented(formatting.table(("BUCKET", "SIZE", "SHARE", ""), rows))


def segment_facts(segment: Segment) -> Mapping[str, str]:
    if segment.logical_device is not None:
        place = f"logical device {segment.logical_device} of {segment.device}"
    else:
        spans = ", ".join(
            f"[{formatting.size(each.start_bytes)}, +{formatting.size(each.size_bytes)})"
            for each in segment.extents or ()
        )
        place = f"extents of {segment.device} {spans}".rstrip()
    at = segment.binding
    bound = formatting.NOTHING if at is None else f"{at.switch} VCS {at.vcs} vPPB {at.vppb}, {at.phase}"
    host = " ".join(
        f"{name}={value}"
        for name, value in (("numa_node", segment.numa_node), ("dax_device", segment.dax_device))
        if value is not None
    )
    return {
        "Segment": segment.id,
        "Place": place,
        "Size": formatting.size(segment.size_bytes),
        "Phase": formatting.value("phase", segment.phase),
        "Binding": bound,
        "Node says": f"{segment.node_state or 'nothing yet'} {host}".strip(),
    }


def _rows(conditions: Sequence[Condition], now: datetime) -> Iterator[Sequence[str]]:
    for each in conditions:
        yield each.type, each.status, formatting.age(each.last_transition_at, now), each.reason, each.message


def operation_text(operation: Operation, now: datetime) -> str:
    document = operation.document
    far = {} if operation.percent is None else {"Done": f"{operation.percent} %"}
    return formatting.aligned(
        {
            "Goal": operation.goal,
            "State": operation.state,
            "Reason": formatting.value("reason", operation.reason),
            "Attempts": str(operation.attempts),
            "Age": formatting.age(datetime.fromisoformat(document["created_at"]), now),
            **far,
            "Id": operation.id,
        },
        indent="  ",
    )


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
