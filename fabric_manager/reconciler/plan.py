"""What to do next for one segment: a pure function of what is wanted and what hardware shows.

It gets no hint of what changed and keeps no memory, so a restart, a missed event and a second process all take this
one path.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from fabric_manager.domain.errors import Code
from fabric_manager.domain.lifecycle import Event, Goal, Phase
from fabric_manager.southbound.driver import BackgroundStatus, ExtentState, TaggedExtent, VppbFacts, VppbState

OFFERS_MAX = 3  # a host that turned an offer down three times will not take it
REFUSALS_MAX = 3  # nor will a switch or device that refused the command three times


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the segment's device hangs for its host. `ld_id`: an MLD's LD, or the host's interface on a DCD."""

    switch: str
    vcs: int
    vppb: int
    port: int
    ld_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRelease:
    """A step after which the device erases: in which life of the device, and the outcome (None: unknown)."""

    boot_count: int | None
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A segment as the database wants it. `late`: the deadline for binding is over. Spans are (start, size) in bytes.

    `exposed`: a host may have seen the bytes since they were last erased; `offered_in` says in which lives of a DCD.
    """

    segment_id: UUID
    phase: Phase
    goal: Goal
    kind: str
    serial: str
    size_bytes: int
    ld_id: int | None
    place: Place | None
    spans: tuple[tuple[int, int], ...] = ()
    region: int = 0
    sanitize_on_release: bool = False
    sanitized: bool = False
    late: bool = False
    offers: int = 0
    refusals: int = 0
    exposed: bool = False
    offered_in: tuple[int | None, ...] = ()
    releases: tuple[SentRelease, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What hardware shows of it. `extents` are those of the segment's tag; backgrounds are None when not looked at."""

    vppb: VppbFacts | None = None
    extents: tuple[TaggedExtent, ...] = ()
    device_background: BackgroundStatus | None = None

    @property
    def boot_count(self) -> int | None:
        return self.device_background.boot_count if self.device_background else None


class StepKind(StrEnum):
    BIND = "bind"
    UNBIND = "unbind"
    OFFER = "offer"
    WITHDRAW = "withdraw"  # take back what no host has: an offer never answered, or memory behind an unbound vPPB
    RELEASE = "release"
    SANITIZE = "sanitize"
    WATCH = "watch"  # write down that the device is erasing, in this life of it
    PROVE = "prove"  # write down why the device's own erasure can be trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """Change hardware. `component` is what it is sent to: one changing command at a time."""

    step: StepKind
    component: str
    intent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Hardware is as wanted, or provably not: the lifecycle moves on `event`."""

    event: Event
    failure: tuple[Code, str] | None = None
    forgotten: bool = False  # the device lost the memory without erasing it


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Somebody else has to act first. `quiet`: nothing is expected soon."""

    reason: str
    quiet: bool = False


Decision = Do | Settle | Wait

HELD = frozenset({ExtentState.ACCEPTED, ExtentState.RELEASE_REQUESTED})
HELD_OR_OFFERED = HELD | {ExtentState.OFFERED}

SANITIZED: Mapping[Goal, Event] = {
    Goal.RELEASE: Event.SANITIZED_RELEASE,
    Goal.UNDO: Event.SANITIZED_UNDO,
    Goal.UNBIND: Event.SANITIZED_UNBIND,
}


def plan(wanted: Wanted, seen: Seen) -> Decision:
    """The next move for `wanted`, whose phase is binding, release_blocked, releasing or sanitizing."""
    match wanted.phase:
        case Phase.RELEASE_BLOCKED:
            return release_blocked(wanted, seen)
        case Phase.SANITIZING if wanted.sanitized:
            return Settle(event=SANITIZED[wanted.goal])
        case Phase.BINDING | Phase.RELEASING | Phase.SANITIZING:
            return (dynamic_capacity if wanted.kind == "dcd" else whole)(wanted, seen)
        case _:
            return Wait(reason=f"nothing to do while {wanted.phase}", quiet=True)


def present(wanted: Wanted, seen: Seen) -> bool:
    """Does hardware give the memory to its host?"""
    attached = wanted.place is not None and is_ours(wanted.place, seen.vppb)
    if wanted.kind != "dcd":
        return attached
    return attached and any(extent.state in HELD for extent in seen.extents)


def release_blocked(wanted: Wanted, seen: Seen) -> Decision:
    if not present(wanted, seen):
        return Settle(event=Event.GONE)
    return Wait(reason="the node reports the memory online; waiting for it to go offline", quiet=True)


def is_ours(place: Place, vppb: VppbFacts | None) -> bool:
    return (
        vppb is not None
        and vppb.state in (VppbState.BOUND_LD, VppbState.BOUND_PORT)
        and (vppb.port, vppb.ld_id) == (place.port, place.ld_id)
    )


def whole(wanted: Wanted, seen: Seen) -> Decision:
    """An LD of an MLD, or a whole device: present exactly when its vPPB is bound to it."""
    place = need_place(wanted)
    if wanted.phase is Phase.SANITIZING:
        return Do(step=StepKind.SANITIZE, component=wanted.serial, intent={"ld_id": wanted.ld_id})
    ours = is_ours(place, seen.vppb)
    if seen.vppb is not None and seen.vppb.state is VppbState.BUSY:
        return Wait(reason="the switch is binding or unbinding")
    if wanted.phase is Phase.RELEASING:
        return unbind(place) if ours else Settle(event=Event.GONE)
    if ours:
        return Settle(event=Event.BIND_READ_BACK)
    return given_up(wanted) or attach(wanted, place, seen.vppb)


def dynamic_capacity(wanted: Wanted, seen: Seen) -> Decision:
    """Extents of a DCD: present exactly when the host accepted what was offered under the segment's tag."""
    match wanted.phase:
        case Phase.BINDING:
            return bind_extents(wanted, seen)
        case Phase.RELEASING:
            return release_extents(wanted, seen)
        case _:
            return prove_erasure(wanted, seen)


def bind_extents(wanted: Wanted, seen: Seen) -> Decision:
    place = need_place(wanted)
    states = {extent.state for extent in seen.extents}
    accepted = {(e.start_bytes, e.size_bytes) for e in seen.extents if e.state is ExtentState.ACCEPTED}
    if ExtentState.OFFERED in states:
        if not wanted.late:
            return Wait(reason="the host has not answered the offer")
        if accepted:
            return Settle(event=Event.UNDO, failure=partly(wanted, seen))
        return withdraw(wanted, place, seen)
    given, attached = covers(accepted, wanted.spans), is_ours(place, seen.vppb)
    if given and attached:
        return Settle(event=Event.BIND_READ_BACK)
    if states and not given:  # part of it, or on its way back to the device
        return Settle(event=Event.UNDO, failure=partly(wanted, seen))
    if (end := given_up(wanted)) is not None:
        return end
    if not attached:  # first use, or the switch forgot what the device did not
        return attach(wanted, place, seen.vppb)
    if wanted.offers >= OFFERS_MAX:
        return not_bound(wanted, Code.NODE_UNREADY, f"the host turned the offer down {wanted.offers} times")
    intent = {
        "host_ld": place.ld_id,
        "region": wanted.region,
        "spans": [list(span) for span in wanted.spans],
        "boot_count": seen.boot_count,
    }
    return Do(step=StepKind.OFFER, component=wanted.serial, intent=intent)


def release_extents(wanted: Wanted, seen: Seen) -> Decision:
    place = need_place(wanted)
    states = {extent.state for extent in seen.extents}
    if states & HELD_OR_OFFERED and seen.vppb is not None and seen.vppb.state is VppbState.FREE:
        return withdraw(wanted, place, seen)  # the host does not reach it any more, so it cannot answer
    # A request that an earlier life of the device was sent proves nothing of this one; asking again is one request.
    asked_before = ExtentState.RELEASE_REQUESTED in states and not erases(wanted, seen)
    if ExtentState.ACCEPTED in states or asked_before:
        intent = {"host_ld": place.ld_id, "sanitize": True, "boot_count": seen.boot_count}
        return Do(step=StepKind.RELEASE, component=wanted.serial, intent=intent)
    if ExtentState.OFFERED in states:
        return withdraw(wanted, place, seen)
    if ExtentState.RELEASE_REQUESTED in states:
        return Wait(reason="the host was asked to give the memory back")
    return Settle(event=Event.GONE)


def withdraw(wanted: Wanted, place: Place, seen: Seen) -> Do:
    intent = {"host_ld": place.ld_id, "boot_count": seen.boot_count}
    return Do(step=StepKind.WITHDRAW, component=wanted.serial, intent=intent)


def prove_erasure(wanted: Wanted, seen: Seen) -> Decision:
    """The device erases what leaves a host. That it did is believed only of the life in which that began."""
    intent = {"boot_count": seen.boot_count, "method": "release_with_sanitize"}
    if any(extent.state is ExtentState.SANITIZING for extent in seen.extents):
        if erases(wanted, seen):
            return Wait(reason="the device is erasing the memory")
        return Do(step=StepKind.WATCH, component=wanted.serial, intent=intent)
    if seen.extents:
        return Settle(event=Event.UNPROVABLE, failure=(Code.DEVICE_FAILED, "memory came back to the host while erased"))
    if erases(wanted, seen):
        return Do(step=StepKind.PROVE, component=wanted.serial, intent=intent)
    if not wanted.exposed:
        # Nothing to erase: no host was ever offered it.
        return Do(step=StepKind.PROVE, component=wanted.serial, intent=intent | {"method": "completion"})
    detail = "the device lost the memory without a release that erases; its contents may still be there"
    return Settle(event=Event.UNPROVABLE, failure=(Code.DEVICE_FAILED, detail), forgotten=True)


def erases(wanted: Wanted, seen: Seen) -> bool:
    """Does the device, in its present life, erase the memory once no host has it?

    Because it was told to or is at it; or because its region does so with all that leaves a host, and no other life
    of it offered the memory to one.
    """
    region = wanted.sanitize_on_release
    believed = {"done", None, "unknown"} if region else {"done"}
    told = any(sent.boot_count == seen.boot_count and sent.outcome in believed for sent in wanted.releases)
    return told or (region and wanted.offered_in == (seen.boot_count,))


def attach(wanted: Wanted, place: Place, vppb: VppbFacts | None) -> Decision:
    if vppb is None:
        return not_bound(wanted, Code.DEVICE_FAILED, f"{place.switch} shows no vPPB {place.vppb} in VCS {place.vcs}")
    match vppb.state:
        case VppbState.FREE:
            intent = {"vcs": place.vcs, "vppb": place.vppb, "port": place.port, "ld_id": place.ld_id}
            return Do(step=StepKind.BIND, component=place.switch, intent=intent)
        case VppbState.BUSY:
            return Wait(reason="the switch is binding or unbinding")
        case _:
            detail = f"vPPB {place.vppb} of VCS {place.vcs} is bound to port {vppb.port}, LD {vppb.ld_id}, not by us"
            return not_bound(wanted, Code.DEVICE_FAILED, detail)


def unbind(place: Place) -> Do:
    return Do(
        step=StepKind.UNBIND,
        component=place.switch,
        intent={"vcs": place.vcs, "vppb": place.vppb, "option": "managed"},
    )


def given_up(wanted: Wanted) -> Settle | None:
    """The end of a binding that hardware does not show, when it is too late or was refused for good."""
    if wanted.late:
        return not_bound(wanted, Code.DEADLINE_EXCEEDED, "not bound before the deadline")
    if wanted.refusals >= REFUSALS_MAX:
        detail = f"hardware refused the command {wanted.refusals} times; the timeline has its answers"
        return not_bound(wanted, Code.DEVICE_FAILED, detail)
    return None


def not_bound(wanted: Wanted, code: Code, detail: str) -> Settle:
    """Hardware does not show it now. Only bytes that no host can have seen are free without having been erased."""
    event = Event.UNDO if wanted.exposed else Event.BIND_UNTOUCHED
    return Settle(event=event, failure=(code, detail))


def partly(wanted: Wanted, seen: Seen) -> tuple[Code, str]:
    taken = sum(extent.size_bytes for extent in seen.extents if extent.state is ExtentState.ACCEPTED)
    if wanted.late and not taken:
        return Code.DEADLINE_EXCEEDED, "the host did not answer the offer before the deadline"
    return Code.NODE_UNREADY, f"the host took {taken} of {wanted.size_bytes} bytes"


def covers(accepted: set[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> bool:
    """Are they the same bytes? A device may cut or join what it lists."""
    return bool(accepted) and joined(sorted(accepted)) == joined(sorted(spans))


def joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for start, size in spans:
        if runs and sum(runs[-1]) == start:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((start, size))
    return runs


def need_place(wanted: Wanted) -> Place:
    if wanted.place is None:
        raise ValueError(f"segment {wanted.segment_id} is {wanted.phase} and has no attachment")
    return wanted.place
