"""Requests, node reports, restarts and faults in any order: the promises of design.md section 2 hold after each step.

A real PostgreSQL, a real rack process, the real reconciler. Its tasks run only while a rule runs, so that the order of
events is Hypothesis's as far as it can be. `FABRIC_MANAGER_MACHINE_SEED` repeats a run, `…_EXAMPLES` makes it longer.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import UUID, uuid4

import uuid_utils.compat
from hypothesis import HealthCheck, assume, seed, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fabric_manager.domain.allocation import Allocation
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import MiB
from fabric_manager.southbound.simulator.codes import Opcode
from fabric_manager.southbound.simulator.faults import FaultKind
from fabric_manager.southbound.simulator.supervise import start_or_adopt
from fabric_manager.store import verbs
from fabric_manager.store.database import Database
from tests.conftest import TEMPLATE, run_on, with_database
from tests.reconciler.small import (
    CAPACITY_BYTES,
    DCD,
    MLD,
    RACK_FILE,
    SERIALS,
    SIZE_BYTES,
    a_small_system,
    agree,
    buckets,
    discovered,
    rows,
    segments,
    trespasses,
    violations,
)
from tests.systems import ACTOR, System

SEED = int(os.environ.get("FABRIC_MANAGER_MACHINE_SEED", random.SystemRandom().randrange(1 << 32)))
EXAMPLES_MAX = int(os.environ.get("FABRIC_MANAGER_MACHINE_EXAMPLES", "10"))
STEPS_MAX = 25
TIME_S = float(os.environ.get("FABRIC_MANAGER_MACHINE_TIME_S", "60"))  # after which no further example is begun
HOSTS = ("node-0", "node-1", "node-2")
END_S = 30.0

Answer = TypeVar("Answer")
ABSENT_STEPS_MAX = 3  # how long a rack or a reconciler stays away: what is down all the time shows nothing
KILLS_MAX = 2  # of the rack's process, in one example: starting it takes a second
early_keys = st.sampled_from([f"early-{n}" for n in range(3)])
hosts = st.sampled_from(HOSTS)
moments_s = st.sampled_from([0.0, 0.005, 0.02, 0.08, 0.3])
wishes = st.fixed_dictionaries(
    {
        "pool": st.sampled_from([MLD, DCD]),
        "size_bytes": st.sampled_from([SIZE_BYTES, 512 * MiB]),
        "tenant": st.sampled_from(["blue", "green"]),
        "host": hosts,
        "bind": st.sampled_from([True, True, True, False]),
    }
)
commands = st.sampled_from(
    [Opcode.BIND, Opcode.UNBIND, Opcode.SANITIZE, Opcode.ADD_CAPACITY, Opcode.RELEASE_CAPACITY, Opcode.GET_EXTENTS]
)
# A device that lies about an erasure is believed (failure-model.md F53), so that one is left out.
faults = st.tuples(
    st.sampled_from(
        [
            FaultKind.DROP_BEFORE,
            FaultKind.DROP_AFTER,
            FaultKind.DUPLICATE,
            FaultKind.LATE_ANSWER,
            FaultKind.REFUSE,
            FaultKind.BUSY,
            FaultKind.LIE,
            FaultKind.RESTART,
            FaultKind.SANITIZE_FAIL,
        ]
    ),
    commands,
).filter(lambda fault: fault not in [(FaultKind.LIE, Opcode.SANITIZE), (FaultKind.LIE, Opcode.GET_EXTENTS)])

REFUSALS = {  # what a claim or a bind may be told here
    Code.INSUFFICIENT_CAPACITY,
    Code.FRAGMENTATION,
    Code.HOST_LIMIT_REACHED,
    Code.NO_MATCHING_DEVICE,  # a device that failed to erase is not healthy
    Code.NOT_REACHABLE_FROM_HOST,
}


class LifecycleMachine(RuleBasedStateMachine):
    postgres: ClassVar[str] = ""  # the server's URL
    begins_until_s: ClassVar[float] = 0.0  # on the monotonic clock

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.working: AsyncExitStack | None = None  # the reconciler's
        self.name = f"machine_{uuid4().hex}"
        self.owners = 0
        self.boots = dict.fromkeys(HOSTS, 1)
        self.bodies: dict[str, dict[str, Any]] = {}  # by key, of the request it stands for
        self.ids: dict[str, UUID] = {}
        self.tombstones: set[str] = set()
        self.absent_steps = 0
        self.kills = 0
        self.disturbed = False  # something happened after which a fact may be unprovable
        self.forgot = False  # hardware forgot what hosts may still think they have
        self.excused = dict.fromkeys(HOSTS, 0)  # machine checks that a rack made by forgetting its bindings

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.runner.run(work)

    # The world.

    @initialize(first=st.lists(wishes, min_size=2, max_size=4), after_s=st.sampled_from([0.0, 0.2, 0.4]))
    def build(self, first: list[dict[str, Any]], after_s: float) -> None:
        """Some allocations are there before anything else happens, on their way or bound already."""
        assume(time.monotonic() < self.begins_until_s)
        self.run(self._build())
        for wish in first:
            self.claim(wish, 0)
        self.run(asyncio.sleep(after_s))

    async def _build(self) -> None:
        await run_on(self.postgres, f"CREATE DATABASE {self.name} TEMPLATE {TEMPLATE}")
        self.db = Database(with_database(self.postgres, self.name))
        directory = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="machine-"))
        self.system: System = await self.stack.enter_async_context(
            a_small_system(self.db, uuid_utils.compat.uuid7, directory=Path(directory))
        )
        await self._start()
        await discovered(self.system)

    async def _start(self) -> None:
        self.owners += 1
        self.working = AsyncExitStack()
        await self.working.enter_async_context(self.system.reconciling(owner=f"machine/{self.owners}"))

    async def _stop(self) -> None:
        if self.working is not None:
            await self.working.aclose()
            self.working = None

    # Requests.

    @rule(wish=wishes, after_s=moments_s)
    def claim(self, wish: dict[str, Any], after_s: float) -> None:
        self.run(self._claim(f"key-{len(self.bodies)}", wish, after_s))

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), same=st.booleans(), wish=wishes, after_s=moments_s)
    def replay(self, data: st.DataObject, same: bool, wish: dict[str, Any], after_s: float) -> None:
        key = self._some_key(data)
        self.run(self._claim(key, self.bodies[key] if same else wish, after_s))

    @rule(key=early_keys, wish=wishes, delete_first=st.booleans())
    def delete_and_put_race(self, key: str, wish: dict[str, Any], delete_first: bool) -> None:
        if delete_first and key not in self.bodies:
            self.tombstones.add(key)
            self.run(self._try(self.system.release(key), set(), 0))
        self.run(self._claim(key, self.bodies.get(key, wish), 0))
        if key in self.bodies:
            self.run(self._try(self.system.release(key), set(), 0))

    def _some_key(self, data: st.DataObject) -> str:
        """Of those that were granted something; the latest ones are the likeliest to hold it still."""
        known = list(self.bodies)
        return data.draw(st.sampled_from(known[-4:]))

    async def _claim(self, key: str, wish: dict[str, Any], after_s: float) -> None:
        before = await self.system.get(key)
        try:
            allocation = await self.system.claim(key, **wish)
        except FabricError as error:
            if key in self.bodies:
                assert error.code is (Code.KEY_REUSE_MISMATCH if wish != self.bodies[key] else Code.RELEASED), (
                    f"{error.code}: {error}"
                )
                assert before is not None
                assert error.code is Code.KEY_REUSE_MISMATCH or before.phase is Phase.RELEASED
            elif key in self.tombstones:
                assert error.code is Code.RELEASED
            else:
                assert error.code in REFUSALS, error
                assert await self.system.get(key) is None, "a refusal leaves nothing behind"
        else:
            assert key not in self.tombstones, "its release came first"
            assert self.bodies.setdefault(key, wish) == wish
            assert self.ids.setdefault(key, allocation.id) == allocation.id, "one key is one allocation"
        await asyncio.sleep(after_s)

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), host=hosts, after_s=moments_s)
    def bind(self, data: st.DataObject, host: str, after_s: float) -> None:
        allowed = REFUSALS | {Code.RELEASED, Code.ILLEGAL_PHASE, Code.RELEASING}
        self.run(self._try(self.system.bind(self._some_key(data), host), allowed, after_s))

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), after_s=moments_s)
    def unbind(self, data: st.DataObject, after_s: float) -> None:
        allowed = {Code.RELEASED, Code.ILLEGAL_PHASE, Code.RELEASING}
        self.run(self._try(self.system.unbind(self._some_key(data)), allowed, after_s))

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), after_s=moments_s)
    def release(self, data: st.DataObject, after_s: float) -> None:
        self.run(self._try(self.system.release(self._some_key(data)), set(), after_s))

    async def _try(self, verb: Coroutine[Any, Any, Any], allowed: set[Code], after_s: float) -> bool:
        try:
            await verb
        except FabricError as error:
            assert error.code in allowed, error
            return False
        finally:
            await asyncio.sleep(after_s)
        return True

    # Nodes. What they say is what is so on the rack: online is said first and done after, offline the other way round.

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), after_s=moments_s, phase=st.sampled_from(["online", "online", "offline", "offline_failed"]))
    def report(self, data: st.DataObject, after_s: float, phase: str) -> None:
        self.run(self._report(self._some_key(data), phase, after_s))

    @rule(then=st.sampled_from([None, "release", "unbind"]), after_s=moments_s)
    def nodes_use_what_is_bound(self, then: str | None, after_s: float) -> None:
        for key in list(self.bodies)[-4:]:
            self.run(self._report(key, "online", 0))
            if then is not None:
                verb = self.system.release if then == "release" else self.system.unbind
                allowed = {Code.RELEASED, Code.ILLEGAL_PHASE, Code.RELEASING}
                self.run(self._try(verb(key), allowed, after_s))

    async def _report(self, key: str, phase: str, after_s: float) -> None:
        allocation = await self.system.get(key)
        if allocation is None or allocation.host is None or not await self._rack_answers():
            return
        host, words = allocation.host, await self._words(allocation)
        if phase == "offline":
            for word in words:
                await self.system.control.set_online(host, word, online=False)
        allowed = {Code.RELEASED, Code.ILLEGAL_PHASE, Code.RELEASING}
        told = self.system.report(allocation, phase, boot_id=f"{host}-{self.boots[host]}")
        if await self._try(told, allowed, 0) and phase == "online":
            for word in words:
                await self.system.control.set_online(host, word, online=True)
        await asyncio.sleep(after_s)

    async def _words(self, allocation: Allocation) -> list[str]:
        return [
            str(s.id) if s.logical_device is None else f"{SERIALS[s.device]}/{s.logical_device}"
            for s in allocation.segments
        ]

    @rule(host=hosts)
    def host_starts_anew(self, host: str) -> None:
        self.run(self._host_starts_anew(host))

    async def _host_starts_anew(self, host: str) -> None:
        if await self._rack_answers():
            await self._let_go(host)
            self.boots[host] += 1
            await verbs.register_boot(self.db, host=host, boot_id=f"{host}-{self.boots[host]}", actor=ACTOR)
            self.system.wake()

    async def _let_go(self, host: str) -> None:
        for word in (await self.system.control.host(host))["online"]:
            await self.system.control.set_online(host, word, online=False)

    @rule(
        host=hosts,
        on_offer=st.sampled_from(["accept", "accept", "refuse", "partial", "silent"]),
        on_release=st.sampled_from(["give_back", "give_back", "hold"]),
    )
    def host_changes_its_mind(self, host: str, on_offer: str, on_release: str) -> None:
        self.run(self._host_changes_its_mind(host, on_offer, on_release))

    async def _host_changes_its_mind(self, host: str, on_offer: str, on_release: str) -> None:
        if await self._rack_answers():
            await self.system.control.set_host(host, on_offer=on_offer, on_release=on_release)

    # What breaks.

    @rule(fault=faults, count=st.integers(1, 3), wish=wishes, after_s=moments_s)
    def something_goes_wrong(
        self, fault: tuple[FaultKind, Opcode], count: int, wish: dict[str, Any], after_s: float
    ) -> None:
        """Together with something that will meet it."""
        self.disturbed = True
        kind, opcode = fault
        seconds = {FaultKind.DUPLICATE: 0.02, FaultKind.LATE_ANSWER: 0.6}.get(kind, 0.0)
        self.run(self._fault(kind, opcode, count=count, seconds=seconds))
        if opcode in (Opcode.BIND, Opcode.ADD_CAPACITY, Opcode.GET_EXTENTS) or not self.bodies:
            self.claim(wish, after_s)
        else:
            for key in list(self.bodies)[-3:]:
                self.run(self._try(self.system.release(key), set(), after_s))

    async def _fault(self, kind: FaultKind, opcode: Opcode, *, count: int, seconds: float) -> None:
        if await self._rack_answers():
            await self.system.control.add_fault(kind, opcode=opcode, count=count, seconds=seconds)

    @rule(component=st.sampled_from(["sw-0", "mld-0", "dcd-0", "*"]), volatile=st.sampled_from([False, False, True]))
    def components_restart(self, component: str, volatile: bool) -> None:
        self.disturbed = True
        self.forgot = self.forgot or volatile
        self.run(self._components_restart(component, volatile))

    async def _components_restart(self, component: str, volatile: bool) -> None:
        if not await self._rack_answers():
            return
        before = await self._machine_checks()
        await self.system.control.restart(component, volatile=volatile)
        for host, count in (await self._machine_checks()).items():
            self.excused[host] += count - before[host]  # the rack's doing, not the manager's

    @precondition(lambda self: self.kills < KILLS_MAX)
    @rule()
    def rack_is_killed(self) -> None:
        self.disturbed = True
        self.kills += 1
        self.run(self.system.rack.kill())

    async def _rack_comes_back(self) -> None:
        if not self.system.rack.is_running():
            self.system.rack = await start_or_adopt(state_dir=self.system.rack.state_dir, rack_file=RACK_FILE)

    async def _rack_answers(self) -> bool:
        return self.system.rack.is_running()

    @rule(restart=st.booleans(), after_s=moments_s)
    def reconciler_stops(self, restart: bool, after_s: float) -> None:
        async def stop() -> None:
            await self._stop()
            if restart:
                await self._start()
                await asyncio.sleep(after_s)

        self.run(stop())

    @rule(seconds=st.sampled_from([0.05, 0.2, 0.5]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # What must hold whatever happens.

    @invariant()
    def whoever_is_away_comes_back(self) -> None:
        if not hasattr(self, "system") or (self.working is not None and self.system.rack.is_running()):
            self.absent_steps = 0
            return
        self.absent_steps += 1
        if self.absent_steps >= ABSENT_STEPS_MAX:
            self.run(self._rack_comes_back())
            if self.working is None:
                self.run(self._start())

    @invariant()
    def promises_are_kept(self) -> None:
        if self.ids or self.tombstones:
            self.run(self._promises_are_kept())

    async def _promises_are_kept(self) -> None:
        assert await violations(self.db) == []
        for key, allocation_id in self.ids.items():
            found = await self.system.get(key)
            assert found is not None
            assert found.id == allocation_id
        if await self._rack_answers():
            assert await trespasses(self.system) == []
            assert await self._machine_checks() == self.excused, "a host lost memory that it had online"
            assert self.forgot or await self._taken_while_online() == []

    async def _taken_while_online(self) -> list[str]:
        state = await self.system.control.state()
        online = {word for host in state["hosts"].values() for word in host["online"]}
        return [
            f"{row['key']} is {row['phase']}"
            for what, row in (await segments(self.db)).items()
            if (what if row["kind"] == "dcd" else f"{SERIALS[row['device']]}/{row['ld_id']}") in online
            and row["phase"] not in ("online", "release_blocked", "quarantined")
        ]

    async def _machine_checks(self) -> dict[str, int]:
        state = await self.system.control.state()
        return {name: host["machine_checks"] for name, host in state["hosts"].items()}

    # The end.

    def teardown(self) -> None:
        try:
            if hasattr(self, "system"):
                self.run(self._ends_well())
        finally:
            self.run(self._clear())
            self.runner.close()

    async def _ends_well(self) -> None:
        """Everything heals, every node lets go, everything is released: then all bytes are free, or it is said why."""
        await self._rack_comes_back()
        control = self.system.control
        await control.put_faults()
        for device in SERIALS:
            await control.set_health(device, "ok")
        for host in HOSTS:
            await control.set_host(host, on_offer="accept", on_release="give_back")
            await self._let_go(host)
        if self.working is None:
            await self._start()
        for key in self.ids:
            await self._report(key, "offline", 0)
            await self.system.release(key)
        for key in self.ids:
            found = await self.system.get(key)
            assert found is not None
            ended = await self.system.reaches(key, Phase.RELEASED, Phase.QUARANTINED, deadline_s=END_S)
            if ended.phase is Phase.QUARANTINED:
                assert self.disturbed, "nothing happened that could not be proven"
                assert ended.failure is not None
        await agree(self.system)
        await self._promises_are_kept()
        for device in SERIALS:
            held = await buckets(self.db, device)
            assert held.get("free", 0) + held.get("quarantined", 0) == CAPACITY_BYTES, f"{device}: {held}"
            if not self.disturbed:
                assert held == {"free": CAPACITY_BYTES}
        unfinished = (
            "SELECT o.id, a.phase FROM operation o JOIN allocation a ON a.id = o.allocation_id"
            " WHERE o.state IN ('pending', 'running') AND a.phase <> 'quarantined'"  # those wait until cleared
        )
        assert await rows(self.db, unfinished) == []

    async def _clear(self) -> None:
        await self._stop()
        await self.stack.aclose()
        if hasattr(self, "db"):
            await self.db.close()
            await run_on(self.postgres, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


def test_the_promises_hold_in_any_order_of_events(postgres: str) -> None:
    print(f"FABRIC_MANAGER_MACHINE_SEED={SEED}")  # shown when it fails
    LifecycleMachine.postgres = postgres
    LifecycleMachine.begins_until_s = time.monotonic() + TIME_S
    run_state_machine_as_test(
        seed(SEED)(LifecycleMachine),
        settings=settings(
            max_examples=EXAMPLES_MAX,
            stateful_step_count=STEPS_MAX,
            deadline=None,
            print_blob=True,
            database=None,
            # No shrinking: an example takes seconds and depends on the clock; the steps of the first one are shown.
            phases=[Stage.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
