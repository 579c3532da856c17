"""What a table shows of each noun."""

from collections.abc import Callable, Mapping, Sequence
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


def rows(noun: str, documents: Sequence[Document], now: datetime) -> str:
    """`documents` as the table of their noun."""
    columns = COLUMNS[noun]
    return formatting.table(
        [header for header, _ in columns], ([show(document, now) for _, show in columns] for document in documents)
    )
