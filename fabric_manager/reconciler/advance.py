"""Bring one goal forward: observe, plan, commit the intent, send, commit the observation, and again."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fabric_manager.domain.actor import RECONCILER, Actor
from fabric_manager.domain.errors import VERDICTS, Code
from fabric_manager.domain.lifecycle import Event, Phase
from fabric_manager.reconciler import trace
from fabric_manager.reconciler.execute import Outcome, execute
from fabric_manager.reconciler.observe import observe
from fabric_manager.reconciler.ownership import Lease
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.plan import Do, Seen, Settle, Wait, Wanted, not_bound, plan, present
from fabric_manager.reconciler.wanted import wanted_of
from fabric_manager.southbound.driver import BusyError, DriverError, FabricDriver, UnreachableError
from fabric_manager.store import work
from fabric_manager.store.database import Database

log = logging.getLogger(__name__)

PASSES_MAX = 32  # of one goal in one go
UNREACHABLE_PAUSE_S = 1.0
QUIET_PAUSE_S = 2.0
BUSY_PAUSE_S = 0.05


@dataclass(kw_only=True)
class Bench:
    """What all goals of one fabric share while one process owns it."""

    db: Database
    lease: Lease
    driver: FabricDriver
    pace: Pace
    identities: Callable[[], UUID]
    paused: bool = False
    rescan: asyncio.Event = field(default_factory=asyncio.Event)
    # One changing command at a time per component. Taken only when free: nobody queues behind a long erasure.
    components: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))


@dataclass(frozen=True, slots=True)
class Pause:
    """Come back later. `attempt` 1 counts towards the attempt cap."""

    after_s: float
    reason: str
    attempt: int = 0


async def advance(bench: Bench, operation_id: UUID) -> None:
    """Work on one goal until it is finished or has to wait. Raises EpochLostError and FabricError (database)."""
    for _ in range(PASSES_MAX):
        goal = await work.reload(bench.db, operation_id)
        if goal is None:
            return
        pause = await one_pass(bench, goal)
        if pause is not None:
            await work.postpone(
                bench.db,
                bench.lease.owned,
                operation_id=operation_id,
                after_s=pause.after_s,
                reason=pause.reason,
                attempt=pause.attempt,
            )
            return


async def one_pass(bench: Bench, goal: Mapping[str, Any]) -> Pause | None:
    """The next move of each segment; the pause when none of them could move."""
    pauses: list[Pause] = []
    moved = False
    for segment in goal["segments"]:
        wanted = wanted_of(segment, late=goal["late"])
        if wanted.phase in (Phase.BINDING, Phase.RELEASE_BLOCKED, Phase.RELEASING, Phase.SANITIZING):
            pause = await move(bench, goal, wanted)
            moved = moved or pause is None
            pauses += [pause] if pause else []
    if moved:
        return None
    return min(pauses, key=lambda pause: pause.after_s, default=Pause(QUIET_PAUSE_S, "waiting for a decision"))


async def move(bench: Bench, goal: Mapping[str, Any], wanted: Wanted) -> Pause | None:
    """None: something changed, look again at once."""
    try:
        seen = await observe(wanted, bench.driver)
    except UnreachableError as error:
        bench.rescan.set()
        return Pause(UNREACHABLE_PAUSE_S, f"the fabric does not answer: {error}")
    except BusyError as error:
        return Pause(BUSY_PAUSE_S, str(error))
    except DriverError as error:
        return Pause(backoff(bench.pace, goal["attempts"]), f"cannot be read: {error}", attempt=1)
    decision = plan(wanted, seen)
    if isinstance(decision, Do) and goal["attempts"] >= bench.pace.attempts_max:
        decision = exhausted(wanted, seen, goal["attempts"])
    match decision:
        case Wait():
            return Pause(QUIET_PAUSE_S if decision.quiet else BUSY_PAUSE_S, decision.reason)
        case Settle():
            await settle(bench, goal, wanted, decision)
            return None
        case Do():
            return await carry_out(bench, goal, wanted, decision)


def exhausted(wanted: Wanted, seen: Seen, attempts: int) -> Settle:
    """After the attempt cap: a binding that hardware does not show is undone, the rest is quarantined."""
    detail = f"gave up after {attempts} attempts; the timeline has each of them"
    if wanted.phase is Phase.BINDING and not present(wanted, seen):
        return not_bound(wanted, Code.DEVICE_FAILED, detail)
    return Settle(event=Event.UNPROVABLE, failure=(Code.DEVICE_FAILED, detail))


async def settle(bench: Bench, goal: Mapping[str, Any], wanted: Wanted, decision: Settle) -> None:
    failure = None
    if decision.failure is not None:
        code, detail = decision.failure
        verdict = VERDICTS[code]
        failure = {
            "code": code,
            "retryable": verdict.retryable,
            "terminal_for": verdict.terminal_for,
            "detail": detail,
        }
    settled = await work.settle(
        bench.db,
        bench.lease.owned,
        segment_id=wanted.segment_id,
        from_phase=wanted.phase,
        event=decision.event,
        failure=failure,
        undo_operation_id=bench.identities(),
        actor=Actor(name=RECONCILER, request_id=goal["request_id"], cause=f"operation:{goal['id']}"),
        forgotten=decision.forgotten,
    )
    if settled:
        log.info(
            "segment settled",
            extra={"segment_id": str(wanted.segment_id), "from_phase": wanted.phase, "event": decision.event},
        )


async def carry_out(bench: Bench, goal: Mapping[str, Any], wanted: Wanted, step: Do) -> Pause | None:
    """Intent, command, observation; each committed before the next begins."""
    if bench.paused:
        return Pause(QUIET_PAUSE_S, "the fabric is paused; nothing that changes hardware is sent")
    component = bench.components[step.component]
    if component.locked():
        return Pause(BUSY_PAUSE_S, f"{step.component} is at another command")
    async with component:
        operation_id = UUID(goal["id"])
        number = await work.begin_step(
            bench.db,
            bench.lease.owned,
            operation_id=operation_id,
            segment_id=wanted.segment_id,
            step=step.step,
            component=step.component,
            intent=step.intent,
        )
        if number is None:
            return None
        outcome = await send(bench, operation_id, wanted, step, number)
    if outcome.word == "done":
        return None
    reason = f"{step.step} on {step.component}: {outcome.word}, {outcome.observed.get('detail', 'see the timeline')}"
    wait_s = BUSY_PAUSE_S if outcome.word == "busy" else backoff(bench.pace, goal["attempts"])
    return Pause(wait_s, reason)


async def send(bench: Bench, operation_id: UUID, wanted: Wanted, step: Do, number: int) -> Outcome:
    async def progress(percent: int) -> None:
        bench.lease.may_send()
        await work.postpone(
            bench.db,
            bench.lease.owned,
            operation_id=operation_id,
            after_s=0,
            reason=f"{step.step} on {step.component}",
            percent=percent,
        )

    token = trace.current.set([])
    try:
        bench.lease.may_send()
        try:
            outcome = await execute(step, wanted, bench.driver, progress=progress)
        except UnreachableError as error:
            bench.rescan.set()
            outcome = Outcome(word="busy", observed={"detail": f"nothing was sent: {error}"})
        evidence = {**outcome.evidence, "id": bench.identities()} if outcome.evidence else None
        await work.end_step(
            bench.db,
            bench.lease.owned,
            operation_id=operation_id,
            number=number,
            outcome=outcome.word,
            observed=outcome.observed,
            frames=[trace.row(frame) for frame in trace.current.get() or []],
            evidence=evidence,
            attempt=0 if outcome.word == "busy" else 1,
        )
    finally:
        trace.current.reset(token)
    log.log(
        logging.DEBUG if outcome.word == "busy" else logging.INFO,
        "step done" if outcome.word == "done" else "step not done",
        extra={"step": step.step, "component": step.component, "number": number, "outcome": outcome.word},
    )
    return outcome


def backoff(pace: Pace, attempts: int) -> float:
    return float(min(pace.backoff_s * 2.0**attempts, pace.backoff_s_max))
