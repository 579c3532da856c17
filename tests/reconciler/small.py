"""A small rack at work, and what database and rack must agree on whenever nothing is under way."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fabric_manager.domain.allocation import Allocation
from fabric_manager.domain.units import GiB
from fabric_manager.store.database import Database
from fabric_manager.store.invariants import check_all
from tests.systems import System, a_system, eventually

RACK_FILE = Path(__file__).parents[1] / "data" / "small-rack.yaml"
MLD, DCD = "high-performance", "standard"  # pools of one device each
DEVICES = {MLD: "mld-0", DCD: "dcd-0"}
SERIALS = {"mld-0": "SMALL-MLD-0", "dcd-0": "SMALL-DCD-0"}
PORTS = {8: "mld-0", 12: "dcd-0"}
CAPACITY_BYTES = 3 * GiB  # of each device
SIZE_BYTES = GiB

# A host may reach memory only through a segment in one of these; in the last two it is not known better.
REACHED = {"binding", "bound", "online", "release_blocked", "releasing", "lost", "quarantined"}
HELD = {"bound", "online", "release_blocked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Memory that a host can reach, as the rack or the database tells it. `what` is a tag, or a device and LD."""

    what: str
    host: str


@asynccontextmanager
async def a_small_system(
    db: Database, identities: Callable[[], UUID], *, directory: Path, rack_file: Path = RACK_FILE
) -> AsyncIterator[System]:
    """The small rack, running and not yet discovered."""
    async with a_system(db, identities, directory=directory, rack_file=rack_file) as system:
        yield system


def slow_rack(directory: Path, *, erases: str) -> Path:
    """The small rack whose devices erase `erases` a second: a GiB takes long enough to be interrupted."""
    path = directory / "slow-rack.yaml"
    path.write_text(RACK_FILE.read_text().replace("sanitize_bytes_per_s: 32 GiB", f"sanitize_bytes_per_s: {erases}"))
    return path


async def rows(db: Database, query: str, **arguments: Any) -> list[dict[str, Any]]:
    async with db.snapshot() as tx:
        return [dict(row) for row in (await tx.execute(sa.text(query), arguments)).mappings()]


async def change(db: Database, statement: str, **arguments: Any) -> None:
    async with db.transaction() as tx:
        await tx.execute(sa.text(statement), arguments)


async def discovered(system: System) -> None:
    """Everything that was declared has been read from hardware."""

    async def unread() -> list[dict[str, Any]]:
        return await rows(system.db, "SELECT name FROM device WHERE health = 'unknown'")

    await eventually(unread, lambda left: not left)


async def claimed(system: System, key: str, pool: str, **fields: Any) -> Allocation:
    return await system.claim(key, **{"size_bytes": SIZE_BYTES, "pool": pool} | fields)


async def violations(db: Database) -> list[str]:
    """What `GET /v1/invariants` would show."""
    async with db.snapshot() as tx:
        found = await check_all(tx)
    return [f"{v.name}: {v.objects} {v.detail}" for checked in found for v in checked.violations]


async def buckets(db: Database, device: str) -> Mapping[str, int]:
    found = await rows(
        db,
        "SELECT free_bytes, allocated_bytes, sanitizing_bytes, quarantined_bytes, withdrawn_bytes FROM device"
        " WHERE name = :device",
        device=device,
    )
    return {name.removesuffix("_bytes"): size for name, size in found[0].items() if size}


async def segments(db: Database) -> dict[str, dict[str, Any]]:
    """Every segment by what names it on the rack, the live one where an LD had several."""
    found = await rows(
        db,
        "SELECT s.id::text AS id, s.phase, s.node_state, d.name AS device, d.kind, s.ld_id, h.name AS host,"
        " a.key, a.generation FROM segment s JOIN allocation a ON a.id = s.allocation_id"
        " JOIN device d ON d.number = s.device_no LEFT JOIN host h ON h.id = a.host_id"
        " ORDER BY (s.phase NOT IN ('failed', 'released')), s.id",
    )
    return {row["id"] if row["kind"] == "dcd" else f"{row['device']}/{row['ld_id']}": row for row in found}


def reached(state: Mapping[str, Any]) -> set[Holding]:
    """What each host of the rack can read and write at this moment."""
    hosts = {port: name for name, host in state["hosts"].items() for _, port in host["ports"]}
    found: set[Holding] = set()
    for vcs, _, port, ld_id in state["switches"]["sw-0"]["bindings"]:
        device = PORTS[port]
        if device == "mld-0":
            found.add(Holding(what=f"{device}/{ld_id}", host=hosts[vcs]))
            continue
        for extent in state["devices"][device]["spaces"].get(str(ld_id), []):
            if extent["state"] in ("accepted", "release_requested"):
                found.add(Holding(what=extent["tag"], host=hosts[vcs]))
    return found


async def trespasses(system: System) -> list[str]:
    """Memory that a host reaches and may not. The database is read before and after, so that a change is none."""
    before = await segments(system.db)
    state = await system.control.state()
    after = await segments(system.db)
    found = []
    for holding in reached(state):
        owners = [side.get(holding.what) for side in (before, after)]
        if all(owner is None or owner["phase"] not in REACHED or owner["host"] != holding.host for owner in owners):
            found.append(f"{holding.host} reaches {holding.what}, which is {owners[1]}")
    places = [(port, ld) for _, _, port, ld in state["switches"]["sw-0"]["bindings"]]
    if len(places) != len(set(places)):
        found.append(f"an LD is bound twice: {places}")
    return found


async def agree(system: System) -> None:
    """At rest: no promise is broken, and hosts hold on the rack exactly what the database says they hold."""

    async def differences() -> list[str]:
        found = await violations(system.db) + await trespasses(system)
        told = {
            Holding(what=what, host=row["host"])
            for what, row in (await segments(system.db)).items()
            if row["phase"] in HELD
        }
        shown = reached(await system.control.state())
        unsure = {what for what, row in (await segments(system.db)).items() if row["phase"] in ("lost", "quarantined")}
        if missing := told - shown:
            found.append(f"the database says so and the rack does not: {missing}")
        if extra := {holding for holding in shown - told if holding.what not in unsure}:
            found.append(f"the rack says so and the database does not: {extra}")
        return found

    await eventually(differences, lambda found: not found, deadline_s=10.0)


async def empty(system: System, *devices: str) -> None:
    """All of it is free again, in the database and on the rack."""
    for device in devices or ("mld-0", "dcd-0"):
        assert await buckets(system.db, device) == {"free": CAPACITY_BYTES}
    await agree(system)
    state = await system.control.state()
    if "dcd-0" in (devices or ("dcd-0",)):
        assert state["devices"]["dcd-0"]["free_bytes"] == CAPACITY_BYTES
