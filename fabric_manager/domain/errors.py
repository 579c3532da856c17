"""What the product refuses, each with a stable code, the facts, and who should do what next."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """Never reworded: clients branch on it."""

    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    FRAGMENTATION = "fragmentation"
    QOS_UNAVAILABLE = "qos_unavailable"
    ISOLATION_UNSATISFIABLE = "isolation_unsatisfiable"
    DEVICE_FAILED = "device_failed"
    NO_MATCHING_DEVICE = "no_matching_device"
    NOT_REACHABLE_FROM_HOST = "not_reachable_from_host"
    HOST_LIMIT_REACHED = "host_limit_reached"
    FENCED = "fenced"
    QUOTA_EXCEEDED = "quota_exceeded"
    POLICY_DENIED = "policy_denied"
    KEY_REUSE_MISMATCH = "key_reuse_mismatch"
    NODE_UNREADY = "node_unready"
    RELEASING = "releasing"
    OPERATION_IN_PROGRESS = "operation_in_progress"
    SWITCH_BUSY = "switch_busy"
    ILLEGAL_PHASE = "illegal_phase"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    RELEASED = "released"
    STALE_GENERATION = "stale_generation"
    PRECONDITION_REQUIRED = "precondition_required"
    VALIDATION_FAILED = "validation_failed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TOO_LARGE = "too_large"
    EVENTS_EXPIRED = "events_expired"
    FABRIC_UNREACHABLE = "fabric_unreachable"
    DATABASE_UNAVAILABLE = "database_unavailable"
    RECOVERING = "recovering"
    READ_ONLY = "read_only"
    OVERLOADED = "overloaded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a caller may conclude. `terminal_for` names the widest thing that cannot succeed unchanged."""

    retryable: bool = False
    terminal_for: str | None = None  # placement, host, claim


PLACEMENT = Verdict(terminal_for="placement")
HOST = Verdict(terminal_for="host")
CLAIM = Verdict(terminal_for="claim")
RETRY = Verdict(retryable=True)
FINAL = Verdict()

VERDICTS: Mapping[Code, Verdict] = {
    Code.INSUFFICIENT_CAPACITY: PLACEMENT,
    Code.FRAGMENTATION: PLACEMENT,
    Code.QOS_UNAVAILABLE: PLACEMENT,
    Code.ISOLATION_UNSATISFIABLE: PLACEMENT,
    Code.DEVICE_FAILED: PLACEMENT,
    Code.NO_MATCHING_DEVICE: PLACEMENT,
    Code.NOT_REACHABLE_FROM_HOST: HOST,
    Code.HOST_LIMIT_REACHED: HOST,
    Code.FENCED: HOST,
    Code.QUOTA_EXCEEDED: CLAIM,
    Code.POLICY_DENIED: CLAIM,
    Code.KEY_REUSE_MISMATCH: CLAIM,
    Code.NODE_UNREADY: RETRY,
    Code.RELEASING: RETRY,
    Code.OPERATION_IN_PROGRESS: RETRY,
    Code.SWITCH_BUSY: RETRY,
    Code.ILLEGAL_PHASE: FINAL,
    Code.DEADLINE_EXCEEDED: PLACEMENT,
    Code.RELEASED: CLAIM,
    Code.STALE_GENERATION: FINAL,
    Code.PRECONDITION_REQUIRED: FINAL,
    Code.VALIDATION_FAILED: FINAL,
    Code.UNAUTHENTICATED: FINAL,
    Code.FORBIDDEN: FINAL,
    Code.NOT_FOUND: FINAL,
    Code.METHOD_NOT_ALLOWED: FINAL,
    Code.TOO_LARGE: FINAL,
    Code.EVENTS_EXPIRED: FINAL,
    Code.FABRIC_UNREACHABLE: RETRY,
    Code.DATABASE_UNAVAILABLE: RETRY,
    Code.RECOVERING: RETRY,
    Code.READ_ONLY: RETRY,
    Code.OVERLOADED: RETRY,
}


class FabricError(Exception):
    """A failure the caller can act on. `facts` are shown as fields; str() is the sentence a person reads.

    A placement code is retryable exactly when its facts say `waiting_helps`.
    """

    def __init__(self, code: Code, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.facts = facts

    @property
    def retryable(self) -> bool:
        return VERDICTS[self.code].retryable or bool(self.facts.get("waiting_helps"))

    @property
    def terminal_for(self) -> str | None:
        return None if self.retryable else VERDICTS[self.code].terminal_for
