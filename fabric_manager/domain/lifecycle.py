"""The life of a segment, as a table. The database holds a copy of it; a test compares the two."""

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Phase(StrEnum):
    RESERVED = "reserved"  # ours in the database; hardware untouched
    BINDING = "binding"  # the switch was or will be asked; nothing is read back yet
    BOUND = "bound"  # read back from hardware: the host has been given the memory
    ONLINE = "online"  # the host says it uses the memory
    RELEASE_BLOCKED = "release_blocked"  # to be released, but the host still uses it
    RELEASING = "releasing"  # being taken from the host
    SANITIZING = "sanitizing"  # no host can reach it; contents are being erased
    RELEASED = "released"  # the bytes are free
    FAILED = "failed"  # could not be bound and was undone; holds no bytes
    LOST = "lost"  # hardware forgot it while the host had it
    QUARANTINED = "quarantined"  # a fact could not be proven; waits for a person


class Event(StrEnum):
    BIND_WANTED = "bind-wanted"
    BIND_READ_BACK = "bind-read-back"
    BIND_UNTOUCHED = "bind-untouched"  # refused or too late, and proven that hardware is as before
    UNDO = "undo"
    NODE_ONLINE = "node-online"
    NODE_OFFLINE = "node-offline"
    NEW_BOOT = "new-boot"
    RELEASE_WANTED = "release-wanted"
    RELEASE_WANTED_PRESENT = "release-wanted-present"  # of a lost one that hardware shows again
    UNBIND_WANTED = "unbind-wanted"
    FENCED = "fenced"  # with proof that the host is off
    GONE = "gone"  # read back: hardware no longer gives it to the host
    SANITIZED_RELEASE = "sanitized-release"
    SANITIZED_UNDO = "sanitized-undo"
    SANITIZED_UNBIND = "sanitized-unbind"
    IDENTITY_CHANGED = "identity-changed"
    FORCED = "forced"
    UNPROVABLE = "unprovable"
    CLEARED_RELEASING = "cleared-releasing"
    CLEARED_SANITIZING = "cleared-sanitizing"
    EXPIRED = "expired"  # a reservation's time-to-live, or a failed allocation's day


P, E = Phase, Event
# fmt: off
LIFECYCLE: Mapping[tuple[Phase, Event], Phase] = {
    # in this phase,    on this event              → next phase
    (P.RESERVED,        E.BIND_WANTED):              P.BINDING,
    (P.RESERVED,        E.RELEASE_WANTED):           P.RELEASED,  # no host ever saw it: nothing to erase
    (P.RESERVED,        E.EXPIRED):                  P.RELEASED,
    (P.BINDING,         E.BIND_READ_BACK):           P.BOUND,
    (P.BINDING,         E.BIND_UNTOUCHED):           P.FAILED,
    (P.BINDING,         E.RELEASE_WANTED):           P.RELEASING,  # outcome unknown, so undo as if it had worked
    (P.BINDING,         E.UNBIND_WANTED):            P.RELEASING,
    (P.BINDING,         E.UNDO):                     P.RELEASING,
    (P.BINDING,         E.UNPROVABLE):               P.QUARANTINED,
    (P.BOUND,           E.NODE_ONLINE):              P.ONLINE,
    (P.BOUND,           E.RELEASE_WANTED):           P.RELEASING,
    (P.BOUND,           E.UNBIND_WANTED):            P.RELEASING,
    (P.BOUND,           E.GONE):                     P.LOST,
    (P.BOUND,           E.IDENTITY_CHANGED):         P.QUARANTINED,
    (P.ONLINE,          E.NODE_OFFLINE):             P.BOUND,
    (P.ONLINE,          E.NEW_BOOT):                 P.BOUND,
    (P.ONLINE,          E.RELEASE_WANTED):           P.RELEASE_BLOCKED,  # only the host may let go
    (P.ONLINE,          E.UNBIND_WANTED):            P.RELEASE_BLOCKED,
    (P.ONLINE,          E.GONE):                     P.LOST,
    (P.ONLINE,          E.IDENTITY_CHANGED):         P.QUARANTINED,
    (P.ONLINE,          E.FORCED):                   P.QUARANTINED,
    (P.RELEASE_BLOCKED, E.NODE_OFFLINE):             P.RELEASING,
    (P.RELEASE_BLOCKED, E.NEW_BOOT):                 P.RELEASING,
    (P.RELEASE_BLOCKED, E.FENCED):                   P.RELEASING,
    (P.RELEASE_BLOCKED, E.GONE):                     P.RELEASING,
    (P.RELEASE_BLOCKED, E.IDENTITY_CHANGED):         P.QUARANTINED,
    (P.RELEASE_BLOCKED, E.FORCED):                   P.QUARANTINED,
    (P.RELEASING,       E.GONE):                     P.SANITIZING,
    (P.RELEASING,       E.UNPROVABLE):               P.QUARANTINED,
    (P.SANITIZING,      E.SANITIZED_RELEASE):        P.RELEASED,
    (P.SANITIZING,      E.SANITIZED_UNDO):           P.FAILED,
    (P.SANITIZING,      E.SANITIZED_UNBIND):         P.RESERVED,  # clean, still allocated
    (P.SANITIZING,      E.UNPROVABLE):               P.QUARANTINED,
    (P.LOST,            E.BIND_WANTED):              P.BINDING,
    (P.LOST,            E.RELEASE_WANTED):           P.RELEASING,
    (P.LOST,            E.RELEASE_WANTED_PRESENT):   P.RELEASE_BLOCKED,
    (P.LOST,            E.IDENTITY_CHANGED):         P.QUARANTINED,
    (P.LOST,            E.FORCED):                   P.QUARANTINED,
    (P.QUARANTINED,     E.CLEARED_RELEASING):        P.RELEASING,
    (P.QUARANTINED,     E.CLEARED_SANITIZING):       P.SANITIZING,
    (P.FAILED,          E.RELEASE_WANTED):           P.RELEASED,
    (P.FAILED,          E.EXPIRED):                  P.RELEASED,
}
# fmt: on

TERMINAL = frozenset({P.FAILED, P.RELEASED})  # hold no bytes
LIVE = frozenset(Phase) - TERMINAL


class Bucket(StrEnum):
    """Where a device's bytes are counted. The five add up to its capacity, always."""

    FREE = "free"
    ALLOCATED = "allocated"
    SANITIZING = "sanitizing"
    QUARANTINED = "quarantined"
    WITHDRAWN = "withdrawn"  # never handed out: not carved, or failed media


def bucket(phase: Phase) -> Bucket:
    """The bucket that holds a segment's bytes in `phase`."""
    if phase in TERMINAL:
        return Bucket.FREE
    if phase is Phase.SANITIZING:
        return Bucket.SANITIZING
    if phase is Phase.QUARANTINED:
        return Bucket.QUARANTINED
    return Bucket.ALLOCATED


class Goal(StrEnum):
    """What an allocation's segments are on their way to; sanitizing ends by it."""

    HOLD = "hold"
    BIND = "bind"
    UNBIND = "unbind"
    RELEASE = "release"
    UNDO = "undo"


# The allocation shows the most urgent of its segments' phases: the first in this order.
PRECEDENCE = (
    P.QUARANTINED,
    P.LOST,
    P.RELEASE_BLOCKED,
    P.RELEASING,
    P.SANITIZING,
    P.FAILED,
    P.RESERVED,
    P.BINDING,
    P.BOUND,
    P.ONLINE,
)


class IllegalTransitionError(Exception):
    """The pair is not in the table: a bug if the reconciler meets it, a conflict if a client asked for it."""

    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"a segment that is {phase} cannot take {event}")
        self.phase = phase
        self.event = event


def advance(phase: Phase, event: Event) -> Phase:
    """The phase after `event`. Raises IllegalTransitionError for every pair the table leaves out."""
    try:
        return LIFECYCLE[phase, event]
    except KeyError:
        raise IllegalTransitionError(phase, event) from None


def allocation_phase(segments: Iterable[Phase]) -> Phase:
    """The phase an allocation shows: the first of PRECEDENCE among its unreleased segments, released when none is."""
    phases = set(segments)
    return next((phase for phase in PRECEDENCE if phase in phases), Phase.RELEASED)
