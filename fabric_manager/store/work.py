"""What the reconciler reads and writes: ownership, due goals, steps and their outcomes, what hardware shows.

Every write carries the owner's epoch and raises EpochLostError when it is no longer in force.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fabric_manager.domain.actor import Actor
from fabric_manager.store.database import Database
from fabric_manager.store.verbs import context
from fabric_manager.telemetry import metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFabric:
    id: UUID
    name: str
    driver: str
    endpoint: str
    admin_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The right to drive one fabric, as long as `epoch` is in force."""

    fabric_id: UUID
    epoch: int

    @property
    def guard(self) -> dict[str, Any]:
        return {"fabric_id": self.fabric_id, "epoch": self.epoch}


async def fabrics(db: Database) -> list[KnownFabric]:
    return [KnownFabric(**{**row, "id": UUID(row["id"])}) for row in await db.call("known_fabrics", {})]


async def acquire(db: Database, fabric_id: UUID, *, owner: str, ttl_s: float, command_s: float) -> Owned | None:
    """None while another live process owns it."""
    arg = {"fabric_id": fabric_id, "owner": owner, "ttl_s": ttl_s, "command_s": command_s}
    epoch = await db.call("acquire_fabric", arg)
    return None if epoch is None else Owned(fabric_id=fabric_id, epoch=int(epoch))


async def renew(db: Database, owned: Owned, *, ttl_s: float) -> bool:
    return bool(await db.call("renew_fabric", {**owned.guard, "ttl_s": ttl_s}))


async def give_up(db: Database, owned: Owned) -> None:
    """Called `give_up` and not release: that word is for memory."""
    await db.call("yield_fabric", owned.guard)


async def due(db: Database, owned: Owned, *, busy: Collection[UUID], work_max: int) -> list[Mapping[str, Any]]:
    arg = {"fabric_id": owned.fabric_id, "busy": list(busy), "work_max": work_max}
    answer: list[Mapping[str, Any]] = await db.call("due_work", arg)
    return answer


async def reload(db: Database, operation_id: UUID) -> Mapping[str, Any] | None:
    """The operation as it is now; None when it is finished."""
    answer: Mapping[str, Any] | None = await db.call("reload_work", {"operation_id": operation_id})
    return answer


async def begin_step(
    db: Database, owned: Owned, *, operation_id: UUID, segment_id: UUID, step: str, component: str, intent: Any
) -> int | None:
    """Commit the intent; its number, or None when the operation is finished."""
    arg = {"operation_id": operation_id, "segment_id": segment_id, "step": step, "component": component}
    number = await db.call("begin_step", {**owned.guard, **arg, "intent": intent})
    return None if number is None else int(number)


async def end_step(
    db: Database,
    owned: Owned,
    *,
    operation_id: UUID,
    number: int,
    outcome: str,
    observed: Mapping[str, Any],
    frames: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any] | None,
    attempt: int,
) -> None:
    """Commit what came of a step, the frames it exchanged, and the evidence of erasure if it erased."""
    arg = {"operation_id": operation_id, "number": number, "outcome": outcome, "observed": observed}
    await db.call("end_step", {**owned.guard, **arg, "frames": list(frames), "evidence": evidence, "attempt": attempt})


async def postpone(
    db: Database,
    owned: Owned,
    *,
    operation_id: UUID,
    after_s: float,
    reason: str,
    attempt: int = 0,
    percent: int | None = None,
) -> None:
    arg = {"operation_id": operation_id, "after_s": after_s, "reason": reason, "attempt": attempt, "percent": percent}
    await db.call("postpone_operation", {**owned.guard, **arg})


async def settle(
    db: Database,
    owned: Owned,
    *,
    segment_id: UUID,
    from_phase: str,
    event: str,
    failure: Mapping[str, Any] | None,
    undo_operation_id: UUID,
    actor: Actor,
    forgotten: bool = False,
) -> bool:
    """Move the segment's lifecycle; False when it is no longer in `from_phase`.

    `forgotten`: the device lost the memory without erasing it and may give it to anybody; it is cordoned.
    """
    arg = {"segment_id": segment_id, "from": from_phase, "event": event, "undo_operation_id": undo_operation_id}
    arg |= {"forgotten": forgotten}
    facts = {"failure": failure} if failure else {}
    answer = await db.call("settle", {**owned.guard, **arg, **facts, "ctx": context(actor)})
    if answer.get("ended") is not None:
        count_ended(**answer["ended"])
    return bool(answer["outcome"] == "settled")


def count_ended(*, goal: str, state: str, age_s: float) -> None:
    """An operation came to its end, `age_s` after it was asked for."""
    metrics.OPERATIONS_FINISHED.labels(goal=goal, state=state).inc()
    durations = {"bind": metrics.BIND_SECONDS, "release": metrics.RELEASE_SECONDS}
    if state == "done" and goal in durations:
        durations[goal].observe(age_s)


async def to_scan(db: Database, owned: Owned) -> list[Mapping[str, Any]]:
    """Every segment that hardware should show (bound, online) or may show again (lost)."""
    answer: list[Mapping[str, Any]] = await db.call("scan_work", {"fabric_id": owned.fabric_id})
    return answer


async def mark_reappeared(db: Database, owned: Owned, *, allocation_id: UUID, shown: bool, actor: Actor) -> None:
    arg = {**owned.guard, "allocation_id": allocation_id, "shown": shown, "ctx": context(actor)}
    await db.call("mark_reappeared", arg)


async def devices_absent(db: Database, owned: Owned, *, serials: Sequence[str], actor: Actor) -> list[str]:
    """Say of every other device of the fabric that hardware does not show it. Answers those to be written anew."""
    arg = {**owned.guard, "serials": list(serials), "ctx": context(actor)}
    return list(await db.call("devices_absent", arg))


async def set_fabric_state(db: Database, owned: Owned, *, state: str, reason: str | None, actor: Actor) -> None:
    await db.call("set_fabric_state", {**owned.guard, "state": state, "reason": reason, "ctx": context(actor)})


async def discover_switch(
    db: Database, owned: Owned, *, switch: Mapping[str, Any], new_id: UUID, ids: Sequence[UUID], actor: Actor
) -> None:
    arg = {**owned.guard, "switch": switch, "id": new_id, "ids": list(ids), "ctx": context(actor)}
    await db.call("discover_switch", arg)


async def discover_device(
    db: Database, owned: Owned, *, device: Mapping[str, Any], new_id: UUID, ids: Sequence[UUID], actor: Actor
) -> None:
    arg = {**owned.guard, "device": device, "id": new_id, "ids": list(ids), "ctx": context(actor)}
    await db.call("discover_device", arg)


async def expire_events(db: Database, *, keep: int, grace_s: float) -> Mapping[str, Any] | None:
    """One step towards keeping only the last `keep` events; what was done, or None when nothing is left to do."""
    done: Mapping[str, Any] | None = await db.call("expire_events", {"keep": keep, "grace_s": grace_s})
    return done


async def sequence_events(db: Database, *, batch_max: int) -> int | None:
    """Number what was written; the head afterwards, or None when another process is at it."""
    head = await db.call("sequence_events", {"batch_max": batch_max})
    return None if head is None else int(head)
