"""Durable goals, and the log of what was sent and seen on the way to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from fabric_manager.domain.lifecycle import Goal


class OperationState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    SUPERSEDED = "superseded"  # a later goal for the same allocation took its place


UNFINISHED = frozenset({OperationState.PENDING, OperationState.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A goal. `reason` says why it is not finished yet, or how it ended; `percent` is of the step that runs."""

    id: UUID
    goal: Goal
    state: OperationState
    allocation: str | None
    fabric: str | None
    reason: str
    attempts: int
    deadline_at: datetime | None
    percent: int | None
    eta_ms: int | None
    actor: str
    request_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricEvent:
    """One change, numbered without gaps. `before` and `after` hold what changed; `key` to `pool`, whom it is about."""

    seq: int
    at: datetime
    type: str
    object_kind: str
    object_id: str
    key: str | None
    claim_uid: str | None
    cluster: str | None
    tenant: str | None
    host: str | None
    device: str | None
    pool: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    actor: str
    request_id: str | None
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One line of an allocation's story. `kind` is event, step, frame or evidence; `facts` are what that kind shows."""

    at: datetime
    kind: str
    title: str
    facts: Mapping[str, Any]
