"""What a table shows of each noun."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from fabric_manager.cli import formatting
from fabric_manager.client import Document

Column = tuple[str, Callable[[Document, datetime], str]]


def field(header: str, name: str) -> Column:
    return header, lambda document, _now: formatting.value(name, document.get(name))


def age(name: str = "created_at") -> Column:
    return "AGE", lambda document, now: formatting.age(datetime.fromisoformat(document[name]), now)


def devices(document: Document) -> str:
    """Where an allocation's segments lie: "mld-0/3" is LD 3 of mld-0."""
    segments = document.get("segments", ())
    return ", ".join(
        each["device"] if each.get("logical_device") is None else f"{each['device']}/{each['logical_device']}"
        for each in segments
    )


def ports(document: Document) -> str:
    return ", ".join(f"{each['switch']}:{each['port']}" for each in document.get("ports", ()))


def link(document: Document) -> str:
    """Width and speed now, of what it could be where that is more."""
    now, most = _speed(document, ""), _speed(document, "_max")
    return now if now == most else f"{now} of {most}"


def _speed(document: Document, suffix: str) -> str:
    width, speed_gt = document.get(f"link_width{suffix}"), document.get(f"link_speed_gt{suffix}")
    return formatting.NOTHING if width is None or speed_gt is None else f"x{width} {speed_gt}GT"


def free_vppbs(document: Document) -> str:
    vppbs = document.get("vppbs")
    if vppbs is None:
        return formatting.NOTHING
    return f"{sum(each['state'] == 'free' for each in vppbs)} of {len(vppbs)}"


ALLOCATION: Sequence[Column] = (
    field("KEY", "key"),
    field("PHASE", "phase"),
    field("SIZE", "granted_bytes"),
    field("POOL", "pool"),
    ("DEVICE", lambda document, _now: formatting.value("device", devices(document))),
    field("HOST", "host"),
    field("TENANT", "tenant"),
    age(),
)

COLUMNS: Mapping[str, Sequence[Column]] = {
    "allocations": ALLOCATION,
    "devices": (
        field("NAME", "name"),
        field("KIND", "kind"),
        field("POOL", "pool"),
        field("HEALTH", "health"),
        field("ADMIN", "admin_state"),
        field("CAPACITY", "capacity_bytes"),
        field("FREE", "free_bytes"),
        field("ALLOCATED", "allocated_bytes"),
        field("SANITIZING", "sanitizing_bytes"),
        field("QUARANTINED", "quarantined_bytes"),
    ),
    "logical-devices": (
        field("DEVICE", "device"),
        field("LD", "ld_id"),
        field("SIZE", "size_bytes"),
        field("DIRTY", "dirty"),
        field("ALLOCATION", "allocation"),
    ),
    "extents": (
        field("DEVICE", "device"),
        field("HOST", "host"),
        field("START", "start_bytes"),
        field("SIZE", "size_bytes"),
        field("ALLOCATION", "allocation"),
        field("TAG", "tag"),
    ),
    "attachments": (
        field("HOST", "host"),
        field("DEVICE", "device"),
        field("LD", "ld_id"),
        field("SWITCH", "switch"),
        field("VCS", "vcs"),
        field("VPPB", "vppb"),
        field("STATE", "state"),
        age(),
    ),
    "hosts": (
        field("NAME", "name"),
        ("PORTS", lambda document, _now: formatting.value("ports", ports(document))),
        field("CLUSTER", "cluster"),
        field("NODE", "node"),
        field("EPOCH", "epoch"),
        field("FENCED", "fenced"),
        age(),
    ),
    "pools": (
        field("NAME", "name"),
        field("KIND", "kind"),
        field("TIER", "tier"),
        field("DEVICES", "devices"),
        field("CAPACITY", "capacity_bytes"),
        field("FREE", "free_bytes"),
        field("LARGEST FIT", "largest_fit_bytes"),
    ),
    "fabrics": (
        field("NAME", "name"),
        field("DRIVER", "driver"),
        field("STATE", "state"),
        field("ADMIN", "admin_state"),
        field("OWNER", "owner"),
        field("REASON", "state_reason"),
    ),
    "switches": (
        field("NAME", "name"),
        field("FABRIC", "fabric"),
        field("PORTS", "ports"),
        field("VCS", "vcs"),
        field("SERIAL", "serial"),
        age(),
    ),
    "ports": (
        field("SWITCH", "switch"),
        field("PORT", "number"),
        field("ROLE", "role"),
        field("HOST", "host"),
        field("DEVICE", "device"),
        ("LINK", lambda document, _now: link(document)),
    ),
    "vcs": (
        field("SWITCH", "switch"),
        field("VCS", "number"),
        field("PORT", "upstream_port"),
        field("HOST", "host"),
        ("VPPBS FREE", lambda document, _now: free_vppbs(document)),
    ),
    "bindings": (
        field("ALLOCATION", "allocation"),
        field("HOST", "host"),
        field("DEVICE", "device"),
        field("LD", "ld_id"),
        field("SIZE", "size_bytes"),
        field("SWITCH", "switch"),
        field("VCS", "vcs"),
        field("VPPB", "vppb"),
        field("PHASE", "phase"),
        age(),
    ),
    "operations": (
        field("ID", "id"),
        field("GOAL", "goal"),
        field("STATE", "state"),
        field("ALLOCATION", "allocation"),
        field("ATTEMPTS", "attempts"),
        field("PERCENT", "percent"),
        field("REASON", "reason"),
        age(),
    ),
}


# What `-o wide` shows besides.
WIDE: Mapping[str, Sequence[Column]] = {
    "allocations": (
        ("CLAIM", lambda document, _now: formatting.value("claim", claim(document))),
        ("BOUND AT", lambda document, _now: formatting.value("bound", places(document))),
        ("OPERATION", lambda document, _now: (document.get("operation") or {}).get("goal", formatting.NOTHING)),
        ("FAILURE", lambda document, _now: (document.get("failure") or {}).get("code", formatting.NOTHING)),
        field("GENERATION", "generation"),
        field("ID", "id"),
    ),
    "devices": (
        field("WITHDRAWN", "withdrawn_bytes"),
        ("PORT", lambda document, _now: f"{document['switch']}:{document['port']}" if document.get("switch") else "-"),
        field("SERIAL", "serial"),
        field("LATENCY NS", "latency_ns"),
        field("DOMAIN", "failure_domain"),
        field("FIRMWARE", "firmware"),
        field("ID", "id"),
    ),
    "logical-devices": (field("SHARE", "share_n"), field("LIMIT", "limit_n"), field("ID", "id")),
    "extents": (field("DPA SPACE", "dpa_space"), field("ID", "id")),
    "attachments": (
        field("KIND", "kind"),
        field("PORT", "port"),
        field("SHARE", "share_n"),
        field("LIMIT", "limit_n"),
        field("ID", "id"),
    ),
    "hosts": (field("NODE UID", "node_uid"), field("BOOT ID", "boot_id"), field("ID", "id")),
    "pools": (
        field("ALLOCATED", "allocated_bytes"),
        field("SANITIZING", "sanitizing_bytes"),
        field("QUARANTINED", "quarantined_bytes"),
        field("STEP", "allocation_step_bytes"),
        field("ID", "id"),
    ),
    "fabrics": (field("ENDPOINT", "endpoint"), field("EPOCH", "epoch"), field("ID", "id")),
    "switches": (field("HDM DECODERS", "hdm_decoders"), field("BOOTS", "boot_count"), field("ID", "id")),
    "ports": (field("SERIAL", "device_serial"), field("ID", "id")),
    "vcs": (field("ID", "id"),),
    "bindings": (
        field("TENANT", "tenant"),
        field("NODE SAYS", "node_state"),
        field("VERIFIED", "verified_at"),
        field("ID", "id"),
    ),
    "operations": (
        field("FABRIC", "fabric"),
        field("ACTOR", "actor"),
        field("DEADLINE", "deadline_at"),
        field("FINISHED", "finished_at"),
        field("REQUEST ID", "request_id"),
    ),
}


def claim(document: Document) -> str:
    consumer = document.get("consumer") or {}
    return "/".join(consumer[part] for part in ("cluster", "namespace", "name") if consumer.get(part))


def places(document: Document) -> str:
    """Where a host sees it: "sw-0:1/0" is vPPB 0 of VCS 1 of sw-0."""
    bindings = [each["binding"] for each in document.get("segments", ()) if each.get("binding")]
    return ", ".join(f"{each['switch']}:{each['vcs']}/{each['vppb']}" for each in bindings)


def columns_of(noun: str, *, wide: bool) -> Sequence[Column]:
    return (*COLUMNS[noun], *(WIDE.get(noun, ()) if wide else ()))


def rows(noun: str, documents: Sequence[Document], now: datetime, *, wide: bool = False) -> str:
    """`documents` as the table of their noun."""
    columns = columns_of(noun, wide=wide)
    return formatting.table(
        [header for header, _ in columns], ([show(document, now) for _, show in columns] for document in documents)
    )


class Rolling:
    """A table whose rows come over time: a column is as wide as it has had to be so far."""

    def __init__(self, noun: str, *, wide: bool) -> None:
        self._columns = columns_of(noun, wide=wide)
        self._widths = [len(header) for header, _ in self._columns]
        self._begun = False

    def lines(self, documents: Sequence[Document], now: datetime) -> Iterator[str]:
        cells = [[show(document, now) for _, show in self._columns] for document in documents]
        if not self._begun:
            self._begun = True
            cells.insert(0, [header for header, _ in self._columns])
        for row in cells:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        for row in cells:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, self._widths, strict=True)).rstrip()
