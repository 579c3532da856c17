"""Whatever one command meets on its way: it ends well or says why, nothing leaks, and the rack agrees."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fabric_manager.domain.allocation import Allocation
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.southbound.simulator.codes import Opcode
from fabric_manager.southbound.simulator.faults import FaultKind
from fabric_manager.store.database import Database
from tests.reconciler.small import (
    CAPACITY_BYTES,
    DCD,
    DEVICES,
    MLD,
    SERIALS,
    SIZE_BYTES,
    a_small_system,
    agree,
    buckets,
    claimed,
    discovered,
    empty,
    rows,
    slow_rack,
)
from tests.systems import FAST, System, eventually

FOR_EVER = None
POOLS = pytest.mark.parametrize("pool", [MLD, DCD])
COMMANDS = {
    "bind": (MLD, Opcode.BIND),
    "unbind": (MLD, Opcode.UNBIND),
    "sanitize": (MLD, Opcode.SANITIZE),
    "attach": (DCD, Opcode.BIND),
    "offer": (DCD, Opcode.ADD_CAPACITY),
    "release": (DCD, Opcode.RELEASE_CAPACITY),
}
# What a command may meet and still get done. Seconds above the driver's patience make the answer late.
MISHAPS: dict[str, dict[str, Any]] = {
    "never arrived": {"kind": FaultKind.DROP_BEFORE},
    "never answered": {"kind": FaultKind.DROP_AFTER},
    "answered twice": {"kind": FaultKind.DUPLICATE, "seconds": 0.05},
    "delayed": {"kind": FaultKind.DELAY, "seconds": 0.2},
    "answered late": {"kind": FaultKind.LATE_ANSWER, "seconds": FAST.command_s + 0.1},
    "refused at first": {"kind": FaultKind.REFUSE, "count": 2},
    "busy for a while": {"kind": FaultKind.BUSY, "count": 5},
    "restarted": {"kind": FaultKind.RESTART},
}


@pytest.fixture(scope="module")
async def shared(
    new_database: Callable[[], Any], identities: Callable[[], UUID], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    """One rack for all that ends with everything free again."""
    db = Database(await new_database())
    directory = tmp_path_factory.mktemp("shared")
    async with a_small_system(db, identities, directory=directory) as ready, ready.reconciling():
        await discovered(ready)
        yield ready
    await db.close()


@pytest.fixture
async def alone(db: Database, identities: Callable[[], UUID], tmp_path: Path) -> AsyncIterator[System]:
    """A rack of its own, for what leaves marks. It gives up sooner than usual."""
    async with a_small_system(db, identities, directory=tmp_path) as ready:
        ready.pace = replace(FAST, attempts_max=8)
        async with ready.reconciling():
            await discovered(ready)
            yield ready


async def lived(system: System, key: str, pool: str, host: str = "node-0") -> Allocation:
    """From claim to released, with the host using the memory in between."""
    await claimed(system, key, pool, host=host)
    bound = await system.reaches(key, Phase.BOUND)
    assert await buckets(system.db, DEVICES[pool]) == {
        "allocated": SIZE_BYTES,
        "free": CAPACITY_BYTES - SIZE_BYTES,
    }
    await system.report(bound, "online")
    await system.report(bound, "offline")
    await system.release(key)
    return await system.reaches(key, Phase.RELEASED, Phase.QUARANTINED)


async def reason(system: System, key: str) -> str:
    found = await rows(
        system.db,
        "SELECT o.reason FROM operation o JOIN allocation a ON a.id = o.allocation_id WHERE a.key = :key"
        " ORDER BY o.created_at DESC LIMIT 1",
        key=key,
    )
    return str(found[0]["reason"])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mishap", MISHAPS)
async def test_one_mishap_is_survived(shared: System, command: str, mishap: str) -> None:
    pool, opcode = COMMANDS[command]
    if command == "attach":  # the standing attachment is made on first use: take it away between two lives
        await shared.control.restart("sw-0", volatile=True)
    if mishap == "restarted":
        await shared.control.set_host("node-0", answer_s=0.1)  # so that the request is still open afterwards
    await shared.control.add_fault(opcode=opcode, **MISHAPS[mishap])
    ended = await lived(shared, f"{command}-{mishap}".replace(" ", "-"), pool)
    await shared.control.set_host("node-0", answer_s=0.005)
    assert ended.phase is Phase.RELEASED, ended.failure
    assert (await shared.control.faults())["rules"] == [], "the fault was met"
    await empty(shared)


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_component_that_restarts_in_the_middle_and_forgets_leads_to_an_end(alone: System, command: str) -> None:
    pool, opcode = COMMANDS[command]
    await alone.control.add_fault(FaultKind.RESTART, opcode=opcode, volatile=True)
    ended = await lived(alone, "forgot", pool)
    assert (await alone.control.faults())["rules"] == []
    if command == "release":  # the extents are gone, and nothing says that they were erased
        assert ended.phase is Phase.QUARANTINED
        assert await buckets(alone.db, "dcd-0") == {"quarantined": SIZE_BYTES, "free": CAPACITY_BYTES - SIZE_BYTES}
        await agree(alone)
    else:
        assert ended.phase is Phase.RELEASED
        await empty(alone)


@pytest.mark.parametrize("command", ["bind", "unbind", "attach", "offer", "release"])
async def test_a_lie_is_found_out_by_reading_back(shared: System, command: str) -> None:
    pool, opcode = COMMANDS[command]
    if command == "attach":
        await shared.control.restart("sw-0", volatile=True)
    await shared.control.add_fault(FaultKind.LIE, opcode=opcode, count=2)
    assert (await lived(shared, f"lie-{command}", pool)).phase is Phase.RELEASED
    await empty(shared)


@pytest.mark.parametrize("command", ["bind", "attach", "offer"])
@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.LIE, FaultKind.DROP_BEFORE])
async def test_a_binding_that_never_works_fails_and_holds_nothing(
    shared: System, command: str, kind: FaultKind
) -> None:
    pool, opcode = COMMANDS[command]
    key = f"never-{command}-{kind}"
    if command == "attach":
        await shared.control.restart("sw-0", volatile=True)
    shorter = {"deadline_s": 2} if kind is FaultKind.DROP_BEFORE else {}
    await shared.control.add_fault(kind, opcode=opcode, count=FOR_EVER)
    await claimed(shared, key, pool, host="node-0", **shorter)
    failed = await shared.reaches(key, Phase.FAILED, Phase.QUARANTINED)
    await shared.control.put_faults()
    assert failed.phase is Phase.FAILED
    assert failed.failure is not None
    assert failed.failure.code in (Code.DEVICE_FAILED, Code.DEADLINE_EXCEEDED, Code.NODE_UNREADY)
    assert failed.operation is None
    await empty(shared)
    await shared.release(key)


@pytest.mark.parametrize("command", ["unbind", "sanitize", "release"])
async def test_what_cannot_be_taken_back_for_sure_is_quarantined(alone: System, command: str) -> None:
    pool, opcode = COMMANDS[command]
    device = DEVICES[pool]
    await claimed(alone, "stuck", pool, host="node-0")
    await alone.reaches("stuck", Phase.BOUND)
    kind = FaultKind.SANITIZE_FAIL if command == "sanitize" else FaultKind.REFUSE
    await alone.control.add_fault(kind, opcode=opcode, count=FOR_EVER)
    await alone.release("stuck")
    stuck = await alone.reaches("stuck", Phase.QUARANTINED)
    assert stuck.failure is not None
    assert stuck.failure.code == Code.DEVICE_FAILED
    assert await buckets(alone.db, device) == {"quarantined": SIZE_BYTES, "free": CAPACITY_BYTES - SIZE_BYTES}
    await alone.control.put_faults()
    for n in range(2):  # the rest is given out, and no more
        await claimed(alone, f"other-{n}", pool, host="node-1")
        other = await alone.reaches(f"other-{n}", Phase.BOUND)
        assert other.segments[0].logical_device in (None, 1, 2)
    with pytest.raises(FabricError) as refused:
        await claimed(alone, "more", pool, host="node-2")
    assert refused.value.code is Code.INSUFFICIENT_CAPACITY
    await agree(alone)


@POOLS
async def test_an_erasure_that_fails_a_few_times_is_repeated(alone: System, pool: str) -> None:
    opcode = Opcode.SANITIZE if pool == MLD else Opcode.RELEASE_CAPACITY
    await claimed(alone, "again", pool, host="node-0")
    await alone.reaches("again", Phase.BOUND)
    await alone.control.write("node-0", SERIALS[DEVICES[pool]], ld_id=0, address=0, data=b"secret")
    await alone.control.add_fault(FaultKind.SANITIZE_FAIL, opcode=opcode, count=3)
    await alone.release("again")
    assert (await alone.reaches("again", Phase.RELEASED, Phase.QUARANTINED)).phase is Phase.RELEASED
    await alone.control.set_health(DEVICES[pool], "ok")
    await empty(alone)
    await eventually(lambda: rows(alone.db, "SELECT name FROM device WHERE health <> 'ok'"), lambda unwell: not unwell)
    await claimed(alone, "next", pool, host="node-1")
    await alone.reaches("next", Phase.BOUND)
    serial = SERIALS[DEVICES[pool]]
    for ld_id in range(3):
        try:
            data = await alone.control.read("node-1", serial, ld_id=ld_id, address=0, size_bytes=6)
        except Exception:  # not the one that was bound
            continue
        assert data == bytes(6)


async def test_a_dcd_that_cannot_erase_keeps_the_bytes_from_everybody(alone: System) -> None:
    await claimed(alone, "dirty", DCD, host="node-0")
    await alone.reaches("dirty", Phase.BOUND)
    await alone.control.add_fault(FaultKind.SANITIZE_FAIL, opcode=Opcode.RELEASE_CAPACITY, count=FOR_EVER)
    await alone.release("dirty")
    await alone.reaches("dirty", Phase.SANITIZING)
    await eventually(lambda: reason(alone, "dirty"), lambda why: "erasing" in why)
    assert (await buckets(alone.db, "dcd-0"))["sanitizing"] == SIZE_BYTES
    await agree(alone)
    await alone.control.put_faults()
    await alone.reaches("dirty", Phase.RELEASED)


# The host's part in dynamic capacity.


@pytest.mark.parametrize(
    ("how", "code"),
    [("refuse", Code.NODE_UNREADY), ("partial", Code.NODE_UNREADY), ("silent", Code.DEADLINE_EXCEEDED)],
)
async def test_a_host_that_does_not_take_all_of_it_gets_none(shared: System, how: str, code: Code) -> None:
    await shared.control.set_host("node-0", on_offer=how)
    await claimed(shared, how, DCD, host="node-0", deadline_s=1 if how == "silent" else 300)
    failed = await shared.reaches(how, Phase.FAILED, Phase.QUARANTINED)
    await shared.control.set_host("node-0", on_offer="accept")
    assert failed.phase is Phase.FAILED
    assert failed.failure is not None
    assert failed.failure.code == code
    await empty(shared)
    if how == "partial":  # a host had some of it
        evidence = await rows(
            shared.db,
            "SELECT method FROM evidence WHERE segment_id = :id",
            id=failed.segments[0].id,
        )
        assert [row["method"] for row in evidence] == ["release_with_sanitize"]
    assert (await lived(shared, f"{how}-after", DCD)).phase is Phase.RELEASED


async def test_a_host_that_holds_on_is_waited_for_with_a_reason(shared: System) -> None:
    await claimed(shared, "held", DCD, host="node-0")
    await shared.reaches("held", Phase.BOUND)
    await shared.control.set_host("node-0", on_release="hold")
    await shared.release("held")
    await eventually(lambda: reason(shared, "held"), lambda why: "asked to give the memory back" in why)
    held = await shared.reaches("held", Phase.RELEASING)
    assert held.operation is not None
    assert (await buckets(shared.db, "dcd-0"))["allocated"] == SIZE_BYTES
    await shared.control.set_host("node-0", on_release="give_back")
    await shared.reaches("held", Phase.RELEASED)
    await empty(shared)


# Releases that come in the middle of something.


@POOLS
async def test_a_release_before_anything_was_sent_frees_it(shared: System, pool: str) -> None:
    key = f"overtaken-{pool}"
    await claimed(shared, key, pool, host="node-0")
    await shared.release(key)  # no wait in between: the reconciler may or may not have begun
    assert (await shared.reaches(key, Phase.RELEASED, Phase.QUARANTINED)).phase is Phase.RELEASED
    await empty(shared)


@POOLS
async def test_a_release_while_the_bind_is_on_its_way_waits_for_its_outcome(shared: System, pool: str) -> None:
    key = f"on-its-way-{pool}"
    step, opcode = ("bind", Opcode.BIND) if pool == MLD else ("offer", Opcode.ADD_CAPACITY)
    await shared.control.add_fault(FaultKind.DELAY, opcode=opcode, seconds=0.3)
    await claimed(shared, key, pool, host="node-0")

    async def intended() -> list[dict[str, Any]]:
        return await rows(
            shared.db,
            "SELECT 1 FROM operation_step p JOIN segment s ON s.id = p.segment_id"
            " JOIN allocation a ON a.id = s.allocation_id WHERE a.key = :key AND p.step = :step",
            key=key,
            step=step,
        )

    await eventually(intended, bool)
    await shared.release(key)
    assert (await shared.reaches(key, Phase.RELEASED, Phase.QUARANTINED)).phase is Phase.RELEASED
    await empty(shared)


@POOLS
async def test_a_release_that_overtakes_an_unbind_finds_its_evidence(shared: System, pool: str) -> None:
    key = f"changed-mind-{pool}"
    await claimed(shared, key, pool, host="node-0")
    await shared.reaches(key, Phase.BOUND)
    await shared.control.set_host("node-0", answer_s=0.3)
    await shared.unbind(key)
    await shared.reaches(key, Phase.RELEASING, Phase.SANITIZING, Phase.RESERVED)
    await shared.release(key)
    ended = await shared.reaches(key, Phase.RELEASED, Phase.QUARANTINED)
    await shared.control.set_host("node-0", answer_s=0.005)
    assert ended.phase is Phase.RELEASED
    await empty(shared)


async def test_a_vppb_that_was_just_unbound_is_there_for_the_next_claim(
    db: Database, identities: Callable[[], UUID], tmp_path: Path
) -> None:
    async with a_small_system(db, identities, directory=tmp_path) as system:
        system.pace = replace(FAST, scan_s=600.0)
        async with system.reconciling():
            await discovered(system)
            for n in range(4):  # the host has three vPPBs, and nobody looks at the switch in between
                assert (await lived(system, f"n-{n}", MLD)).phase is Phase.RELEASED


async def test_a_component_that_is_busy_when_it_is_read_is_no_outage(alone: System) -> None:
    await alone.control.add_fault(FaultKind.BUSY, component="dcd-0", count=6)
    await eventually(alone.control.faults, lambda faults: not faults["rules"])
    events = await rows(alone.db, "SELECT type FROM event WHERE type IN ('fabric.unreachable', 'fabric.degraded')")
    assert events == []


async def test_an_erasure_of_a_slow_device_tells_how_far_it_is(
    db: Database, identities: Callable[[], UUID], tmp_path: Path
) -> None:
    rack_file = slow_rack(tmp_path, erases="1 GiB")
    async with a_small_system(db, identities, directory=tmp_path, rack_file=rack_file) as system, system.reconciling():
        await discovered(system)
        await claimed(system, "slow", MLD, host="node-0")
        await system.reaches("slow", Phase.BOUND)
        await system.release("slow")
        percent = "SELECT percent FROM operation WHERE percent > 0"
        assert await eventually(lambda: rows(db, percent), bool)
        await system.reaches("slow", Phase.RELEASED)
