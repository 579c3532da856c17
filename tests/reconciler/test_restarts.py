"""Reconciler, rack and fabric owner die, forget and come back: it converges, and what is bound is left alone."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.southbound.simulator.codes import CHANGING, Opcode
from fabric_manager.southbound.simulator.faults import FaultKind
from fabric_manager.southbound.simulator.supervise import start_or_adopt
from fabric_manager.store.database import Database
from tests.reconciler.small import (
    CAPACITY_BYTES,
    DCD,
    DEVICES,
    MLD,
    RACK_FILE,
    SIZE_BYTES,
    a_small_system,
    agree,
    buckets,
    change,
    claimed,
    discovered,
    empty,
    rows,
    violations,
)
from tests.systems import FAST, System, eventually

POOLS = pytest.mark.parametrize("pool", [MLD, DCD])
CHANGES = {f"{opcode:04x}" for opcode in CHANGING}
STOPS = 12


@pytest.fixture
async def system(db: Database, identities: Callable[[], UUID], tmp_path: Path) -> AsyncIterator[System]:
    """Running and discovered; each test brings its own reconcilers."""
    async with a_small_system(db, identities, directory=tmp_path) as ready:
        async with ready.reconciling():
            await discovered(ready)
        yield ready


async def changes(system: System, *, since: int = 0) -> list[dict[str, Any]]:
    """What the rack was sent that changes it."""
    return [entry for entry in await system.control.journal(since=since) if entry["op"] in CHANGES]


async def last(system: System) -> int:
    journal = await system.control.journal()
    return int(journal[-1]["number"]) if journal else 0


async def events(system: System, kind: str) -> list[dict[str, Any]]:
    return await rows(
        system.db,
        "SELECT type, key, after FROM event WHERE type = :kind UNION ALL"
        " SELECT type, key, after FROM event_outbox WHERE type = :kind",
        kind=kind,
    )


async def fabric(system: System) -> dict[str, Any]:
    return (await rows(system.db, "SELECT state, state_reason, owner, epoch FROM fabric"))[0]


async def restarted(system: System) -> None:
    """The rack's process is killed and started again on what it kept."""
    await system.rack.kill()
    system.rack = await start_or_adopt(state_dir=system.rack.state_dir, rack_file=RACK_FILE)


async def stepped(system: System, key: str, step: str) -> bool:
    found = await rows(
        system.db,
        "SELECT 1 FROM operation_step p JOIN segment s ON s.id = p.segment_id"
        " JOIN allocation a ON a.id = s.allocation_id WHERE a.key = :key AND p.step = :step",
        key=key,
        step=step,
    )
    return bool(found)


# The reconciler.


@POOLS
async def test_a_reconciler_may_be_stopped_after_any_time_and_another_one_finishes(system: System, pool: str) -> None:
    for n in range(STOPS):
        key = f"stop-{n}"
        await claimed(system, key, pool, host="node-0")
        for stop in range(2):  # the first somewhere in binding, the second somewhere in releasing or erasing
            async with system.reconciling(owner=f"owner-{n}/{stop}"):
                await asyncio.sleep(0.012 * n)  # what varies is the moment; nothing waits for a result here
            if stop == 0:
                await system.release(key)
        assert await violations(system.db) == []
        async with system.reconciling(owner=f"finisher-{n}/1"):
            ended = await system.reaches(key, Phase.RELEASED, Phase.QUARANTINED)
            assert ended.phase is Phase.RELEASED, ended.failure
            await empty(system)


@pytest.mark.parametrize(
    ("pool", "step", "opcode"),
    [
        (MLD, "bind", Opcode.BIND),
        (MLD, "unbind", Opcode.UNBIND),
        (MLD, "sanitize", Opcode.SANITIZE),
        (DCD, "bind", Opcode.BIND),
        (DCD, "offer", Opcode.ADD_CAPACITY),
        (DCD, "release", Opcode.RELEASE_CAPACITY),
    ],
)
async def test_a_reconciler_stopped_between_command_and_observation_repeats_nothing_blindly(
    system: System, pool: str, step: str, opcode: Opcode
) -> None:
    """Cancelled while the command's answer is under way: the next one reads, and adopts what was done."""
    binds = step in ("bind", "offer")
    await system.control.add_fault(FaultKind.LATE_ANSWER, opcode=opcode, seconds=0.4)
    async with system.reconciling(owner="first/1"):
        await claimed(system, "a", pool, host="node-0")
        if not binds:
            await system.reaches("a", Phase.BOUND)
            await system.release("a")
        await eventually(lambda: stepped(system, "a", step), bool)
        sent = f"{opcode:04x}"

        async def executed() -> list[dict[str, Any]]:
            return [entry for entry in await changes(system) if entry["op"] == sent]

        await eventually(executed, bool)
    async with system.reconciling(owner="second/1"):
        await system.reaches("a", Phase.BOUND if binds else Phase.RELEASED)
        again = 2 if step == "sanitize" else 1  # only an erasure watched from its start is evidence
        assert len([entry for entry in await executed() if entry["code"] in (0, 1)]) == again
        await agree(system)


# The owner of the fabric.


async def test_of_two_reconcilers_one_drives_and_the_other_takes_over_at_once_after_a_clean_stop(
    system: System,
) -> None:
    async with system.reconciling(owner="first/1"):
        await eventually(lambda: fabric(system), lambda f: f["owner"] == "first/1")
        async with system.reconciling(owner="second/1"):
            await claimed(system, "a", MLD, host="node-0")
            await system.reaches("a", Phase.BOUND)
            assert (await fabric(system))["owner"] == "first/1"
            assert len([entry for entry in await changes(system) if entry["op"] == "5201"]) == 1
    async with system.reconciling(owner="second/2"):
        await eventually(lambda: fabric(system), lambda f: f["owner"] == "second/2", deadline_s=5)
        await system.release("a")
        await system.reaches("a", Phase.RELEASED)
        await empty(system)


@contextlib.asynccontextmanager
async def elsewhere(system: System, *, owner: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A reconciler in another process; killed in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.reconciler.other_process",
        system.db.url,
        owner,
        cwd=Path(__file__).parents[2],
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_killed_owner_is_replaced_when_its_time_is_over(system: System) -> None:
    async with elsewhere(system, owner="killed/1") as process:
        await eventually(lambda: fabric(system), lambda f: f["owner"] == "killed/1")
        process.kill()
        await process.wait()
        until = (await rows(system.db, "SELECT owned_until FROM fabric"))[0]["owned_until"]
        async with system.reconciling(owner="heir/1"):
            await claimed(system, "a", DCD, host="node-0")
            await system.reaches("a", Phase.BOUND)
            first = (await rows(system.db, "SELECT min(intended_at) AS at FROM operation_step"))[0]["at"]
            assert (first - until).total_seconds() >= FAST.command_s
            await agree(system)


async def test_an_owner_that_slept_past_its_time_sends_and_writes_nothing_more(system: System) -> None:
    await system.control.add_fault(FaultKind.BUSY, opcode=Opcode.BIND, count=None)
    async with elsewhere(system, owner="sleeper/1") as process:
        await claimed(system, "a", MLD, host="node-0")
        await eventually(lambda: stepped(system, "a", "bind"), bool)  # in the middle of trying
        os.kill(process.pid, signal.SIGSTOP)
        epoch = (await fabric(system))["epoch"]
        async with system.reconciling(owner="heir/1"):
            await eventually(lambda: fabric(system), lambda f: f["owner"] == "heir/1")
            await system.control.put_faults()
            await system.reaches("a", Phase.BOUND)
            mark = await last(system)
            os.kill(process.pid, signal.SIGCONT)
            await system.release("a")
            await system.reaches("a", Phase.RELEASED)
            sent = [entry["op"] for entry in await changes(system, since=mark)]
            assert sent == ["5202", "4400"], "the sleeper woke and sent something"
            late = await rows(
                system.db,
                "SELECT 1 FROM operation_step WHERE epoch = :epoch AND finished_at > intended_at + '2 s'",
                epoch=epoch,
            )
            assert late == []
            assert (await fabric(system))["owner"] == "heir/1"
            await empty(system)


async def test_never_two_commands_for_one_goal_at_a_time(system: System) -> None:
    """Three reconcilers come and go over one database; the rack sees each change once."""
    async with (
        system.reconciling(owner="one/1"),
        system.reconciling(owner="two/1"),
        elsewhere(system, owner="three/1"),
    ):
        for n in range(3):
            await claimed(system, f"mld-{n}", MLD, host=f"node-{n}")
            await claimed(system, f"dcd-{n}", DCD, host=f"node-{n}")
        for n in range(3):
            await system.reaches(f"mld-{n}", Phase.BOUND)
            await system.reaches(f"dcd-{n}", Phase.BOUND)
        done = [entry for entry in await changes(system) if entry["code"] in (0, 1)]
        subjects = [(entry["op"], str(entry["args"])) for entry in done]
        assert len(subjects) == len(set(subjects)) == 3 + 3 + 3, "three LDs, three attachments, three offers"
        await agree(system)


async def test_a_paused_fabric_changes_nothing_and_goes_on_when_active(system: System) -> None:
    async with system.reconciling():
        await claimed(system, "bound", MLD, host="node-0")
        await system.reaches("bound", Phase.BOUND)
        await change(system.db, "UPDATE fabric SET admin_state = 'paused'")
        await claimed(system, "first", MLD, host="node-1")  # wakes the loop, which then knows
        waiting = "SELECT 1 FROM operation WHERE reason LIKE '%paused%'"
        await eventually(lambda: rows(system.db, waiting), lambda found: len(found) == 1)
        mark = await last(system)
        await claimed(system, "dcd", DCD, host="node-1")
        await system.release("bound")
        await eventually(lambda: rows(system.db, waiting), lambda found: len(found) == 3)
        scans = "SELECT scanned_at FROM fabric"
        before = await rows(system.db, scans)
        await eventually(lambda: rows(system.db, scans), lambda found: found != before)
        assert await changes(system, since=mark) == []
        await change(system.db, "UPDATE fabric SET admin_state = 'active'")
        await system.reaches("first", Phase.BOUND)
        await system.reaches("dcd", Phase.BOUND)
        await system.reaches("bound", Phase.RELEASED)
        await agree(system)


# The rack.


async def test_a_killed_rack_comes_back_and_bound_memory_was_never_touched(system: System) -> None:
    async with system.reconciling():
        for pool in (MLD, DCD):
            await claimed(system, pool, pool, host="node-0")
            await system.report(await system.reaches(pool, Phase.BOUND), "online")
        await system.rack.kill()
        down = await eventually(lambda: fabric(system), lambda f: f["state"] == "unreachable")
        assert down["state_reason"]
        assert await events(system, "fabric.unreachable")
        await claimed(system, "meanwhile", MLD, host="node-1")
        system.rack = await start_or_adopt(state_dir=system.rack.state_dir, rack_file=RACK_FILE)
        await system.reaches("meanwhile", Phase.BOUND)
        await eventually(lambda: fabric(system), lambda f: f["state"] == "up")
        assert len(await events(system, "fabric.up")) == 2
        for pool in (MLD, DCD):
            assert (await system.reaches(pool, Phase.ONLINE)).phase is Phase.ONLINE
        # the journal is of this process of the rack: one bind, for the claim that came meanwhile
        assert [(entry["op"], entry["args"]["vcs"]) for entry in await changes(system)] == [("5201", 1)]
        await agree(system)


@POOLS
async def test_a_rack_killed_at_many_moments_of_a_life_changes_nothing_about_its_end(system: System, pool: str) -> None:
    await system.control.set_host("node-0", answer_s=0.05)
    async with system.reconciling():
        for n in range(4):
            key = f"kill-{n}"
            await claimed(system, key, pool, host="node-0")
            await asyncio.sleep(0.02 * n)  # the moment of the kill is what varies
            await restarted(system)
            await system.reaches(key, Phase.BOUND)
            await system.release(key)
            await asyncio.sleep(0.02 * n)
            await restarted(system)
            ended = await system.reaches(key, Phase.RELEASED, Phase.QUARANTINED)
            if ended.phase is Phase.QUARANTINED:
                # An erasure that ended before anybody saw it, in a life that was not asked for it: allowed, and said.
                assert pool == DCD
                assert ended.failure is not None
                assert "may still be there" in ended.failure.detail
                return
        await empty(system)


@POOLS
@pytest.mark.parametrize("used", [False, True], ids=["bound", "online"])
async def test_a_rack_that_forgot_is_noticed_and_the_consumer_is_told(system: System, pool: str, used: bool) -> None:
    async with system.reconciling():
        await claimed(system, "a", pool, host="node-0")
        bound = await system.reaches("a", Phase.BOUND)
        if used:
            await system.report(bound, "online")
        await system.control.restart(volatile=True)
        lost = await system.reaches("a", Phase.LOST)
        assert [event["key"] for event in await events(system, "allocation.lost")] == ["a"]
        assert {c.type: c.status for c in lost.conditions}["Bound"] == "False"
        assert (await buckets(system.db, DEVICES[pool]))["allocated"] == SIZE_BYTES
        assert await violations(system.db) == []
        if used:
            with pytest.raises(FabricError) as refused:
                await system.bind("a", "node-0")  # the node has not let go of what it had
            assert refused.value.code is Code.ILLEGAL_PHASE
            await system.report(lost, "offline")
        await system.bind("a", "node-0")
        again = await system.reaches("a", Phase.BOUND)
        await system.report(again, "online")
        await system.report(again, "offline")
        await system.release("a")
        await system.reaches("a", Phase.RELEASED)
        await empty(system)


@POOLS
async def test_lost_memory_can_be_released(system: System, pool: str) -> None:
    async with system.reconciling():
        await claimed(system, "a", pool, host="node-0")
        await system.report(await system.reaches("a", Phase.BOUND), "online")
        await system.control.restart(volatile=True)
        await system.reaches("a", Phase.LOST)
        await system.release("a")
        ended = await system.reaches("a", Phase.RELEASED, Phase.QUARANTINED)
        if pool == MLD:
            assert ended.phase is Phase.RELEASED, "an LD can be erased after the fact"
            await empty(system)
        else:
            assert ended.phase is Phase.QUARANTINED, "extents that are gone cannot"
            assert await buckets(system.db, "dcd-0") == {
                "quarantined": SIZE_BYTES,
                "free": CAPACITY_BYTES - SIZE_BYTES,
            }
            assert await violations(system.db) == []


async def test_a_switch_that_forgot_what_the_device_remembers(system: System) -> None:
    """The extents are still accepted, but no vPPB leads to them: bound again by its vPPB, or taken back by force."""
    async with system.reconciling():
        for key in ("again", "away"):
            await claimed(system, key, DCD, host="node-0")
            await system.reaches(key, Phase.BOUND)
        await system.control.restart("sw-0", volatile=True)
        for key in ("again", "away"):
            await system.reaches(key, Phase.LOST)
        await system.release("away")
        assert (await system.reaches("away", Phase.RELEASED, Phase.QUARANTINED)).phase is Phase.RELEASED
        mark = await last(system)
        await system.bind("again", "node-0")
        await system.reaches("again", Phase.BOUND)
        assert [entry["op"] for entry in await changes(system, since=mark)] == ["5201"], "its extents were there"
        await agree(system)
        await system.release("again")
        await system.reaches("again", Phase.RELEASED)
        await empty(system)


async def test_memory_that_reappears_stays_lost_and_is_not_taken_from_a_host_that_has_it(system: System) -> None:
    async with system.reconciling():
        await claimed(system, "a", MLD, host="node-0")
        bound = await system.report(await system.reaches("a", Phase.BOUND), "online")
        place = bound.segments[0].binding
        assert place is not None
        await system.control.unbind("sw-0", vcs=place.vcs, vppb=place.vppb)
        await system.reaches("a", Phase.LOST)
        await system.control.bind("sw-0", vcs=place.vcs, vppb=place.vppb, port=8, ld_id=0)

        async def reappeared() -> bool:
            found = await system.get("a")
            assert found is not None
            return any(c.type == "Reappeared" and c.status == "True" for c in found.conditions)

        await eventually(reappeared, bool)
        await system.release("a")
        blocked = await system.reaches("a", Phase.RELEASE_BLOCKED)
        mark = await last(system)
        await eventually(lambda: last(system), lambda at: at > mark + 20)  # looked at again and again
        assert await changes(system, since=mark) == []
        await system.report(blocked, "offline")
        await system.reaches("a", Phase.RELEASED)
        await empty(system)


async def test_a_scan_in_the_middle_of_everything_invents_no_losses(system: System) -> None:
    """Memory is bound and released all the time while the scanner compares: none of it is called lost."""
    system.pace = replace(FAST, scan_s=0.05)
    async with system.reconciling():
        for n in range(6):
            for pool in (MLD, DCD):
                await claimed(system, f"{pool}-{n}", pool, host=f"node-{n % 3}")
            for pool in (MLD, DCD):
                await system.reaches(f"{pool}-{n}", Phase.BOUND)
                await system.release(f"{pool}-{n}")
            for pool in (MLD, DCD):
                await system.reaches(f"{pool}-{n}", Phase.RELEASED)
        assert await events(system, "allocation.lost") == []
        await empty(system)
