"""How a refusal looks on the wire: one table from code to status and title, and the RFC 9457 body."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import Response

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.telemetry import metrics

MEDIA_TYPE = "application/problem+json"
DETAIL_MAX = 1000  # characters; a caller's own input is never sent back at length
FIELD_MAX = 200
ERRORS_MAX = 20
RETRY_AFTER_MS_DEFAULT = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    title: str  # the varying part goes into `detail`


PROBLEMS: Mapping[Code, Problem] = {
    Code.INSUFFICIENT_CAPACITY: Problem(409, "Not enough free memory"),
    Code.FRAGMENTATION: Problem(409, "Enough memory in all, but in no single place"),
    Code.QOS_UNAVAILABLE: Problem(409, "No device can promise the bandwidth or latency"),
    Code.ISOLATION_UNSATISFIABLE: Problem(409, "No device satisfies the isolation policy"),
    Code.DEVICE_FAILED: Problem(409, "The device is not healthy"),
    Code.NO_MATCHING_DEVICE: Problem(409, "No device matches the request"),
    Code.NOT_REACHABLE_FROM_HOST: Problem(409, "The host has no path to the memory"),
    Code.HOST_LIMIT_REACHED: Problem(409, "The host cannot take more"),
    Code.FENCED: Problem(409, "The host is fenced"),
    Code.QUOTA_EXCEEDED: Problem(409, "The tenant's quota does not allow it"),
    Code.POLICY_DENIED: Problem(409, "Policy does not allow it"),
    Code.KEY_REUSE_MISMATCH: Problem(409, "The key stands for another request"),
    Code.NODE_UNREADY: Problem(409, "The node is not ready"),
    Code.RELEASING: Problem(409, "The memory is being released"),
    Code.OPERATION_IN_PROGRESS: Problem(409, "Other work has to finish first"),
    Code.SWITCH_BUSY: Problem(409, "The switch is busy"),
    Code.ILLEGAL_PHASE: Problem(409, "Not possible in this phase"),
    Code.DEADLINE_EXCEEDED: Problem(409, "It could not be bound in time"),
    Code.RELEASED: Problem(410, "The allocation was released"),
    Code.STALE_GENERATION: Problem(412, "The object has changed"),
    Code.PRECONDITION_REQUIRED: Problem(428, "Say which generation you mean"),
    Code.VALIDATION_FAILED: Problem(422, "The request is not valid"),
    Code.UNAUTHENTICATED: Problem(401, "Who are you?"),
    Code.FORBIDDEN: Problem(403, "Not allowed"),
    Code.NOT_FOUND: Problem(404, "Not found"),
    Code.METHOD_NOT_ALLOWED: Problem(405, "This method does not apply here"),
    Code.TOO_LARGE: Problem(413, "The request is too large"),
    Code.EVENTS_EXPIRED: Problem(410, "The events are no longer kept"),
    Code.FABRIC_UNREACHABLE: Problem(503, "The fabric does not answer"),
    Code.DATABASE_UNAVAILABLE: Problem(503, "The database does not answer"),
    Code.RECOVERING: Problem(503, "The service is recovering"),
    Code.READ_ONLY: Problem(503, "No writes at present"),
    Code.OVERLOADED: Problem(503, "Too much at once"),
}


def problem_type(code: Code) -> str:
    return f"/problems/{code.replace('_', '-')}"


def retry_after_ms(error: FabricError, status: int) -> int | None:
    wait_ms = error.facts.get("retry_after_ms")
    return RETRY_AFTER_MS_DEFAULT if wait_ms is None and status == 503 else wait_ms


def to_problem(error: FabricError, *, instance: str, request_id: str) -> dict[str, Any]:
    """The RFC 9457 body; the error's facts follow as extension members."""
    row = PROBLEMS[error.code]
    standard = {
        "type": problem_type(error.code),
        "title": row.title,
        "status": row.status,
        "detail": str(error)[:DETAIL_MAX],
        "instance": instance[:DETAIL_MAX],
        "code": error.code,
        "request_id": request_id,
        "retryable": error.retryable,
        "retry_after_ms": retry_after_ms(error, row.status),
        "terminal_for": error.terminal_for,
    }
    return {**standard, **{name: fact for name, fact in error.facts.items() if name not in standard}}


def problem_response(error: FabricError, *, instance: str, request_id: str) -> Response:
    metrics.PROBLEMS.labels(code=error.code).inc()
    body = to_problem(error, instance=instance, request_id=request_id)
    return as_response(body, error.code)


def internal_response(*, instance: str, request_id: str) -> Response:
    """What a caller sees of a mistake of ours: the request id by which the log has the rest."""
    metrics.PROBLEMS.labels(code="internal").inc()
    body = {
        "type": "/problems/internal",
        "title": "A mistake in this service",
        "status": 500,
        "detail": "the service failed in a way it did not foresee; the log has the rest under the request id",
        "instance": instance[:DETAIL_MAX],
        "code": "internal",
        "request_id": request_id,
        "retryable": False,
        "retry_after_ms": None,
        "terminal_for": None,
    }
    return as_response(body, None)


def as_response(body: Mapping[str, Any], code: Code | None) -> Response:
    headers = {}
    if code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = 'Bearer realm="fabric-manager"'
    if body["retry_after_ms"] is not None:
        headers["Retry-After"] = str(math.ceil(body["retry_after_ms"] / 1000))
    content = orjson.dumps(body, default=str, option=orjson.OPT_UTC_Z)
    return Response(content, status_code=body["status"], media_type=MEDIA_TYPE, headers=headers)


def invalid(field: str, message: str) -> FabricError:
    """One field of the request is wrong."""
    return invalid_fields([(field, message)])


def invalid_fields(errors: Sequence[tuple[str, str]]) -> FabricError:
    shown = [{"field": field[:FIELD_MAX], "message": message[:FIELD_MAX]} for field, message in errors[:ERRORS_MAX]]
    first = shown[0]
    return FabricError(Code.VALIDATION_FAILED, f"{first['field']}: {first['message']}", errors=shown)
