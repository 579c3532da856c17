"""Answers: JSON bodies with their headers, and how the API description tells of them."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from fastapi import Request, Response
from pydantic import BaseModel

from fabric_manager.api.preconditions import etag, names
from fabric_manager.api.problems import MEDIA_TYPE, PROBLEMS, problem_type
from fabric_manager.domain.errors import VERDICTS, Code

# What any operation with a token may answer.
ALWAYS = (Code.UNAUTHENTICATED, Code.VALIDATION_FAILED, Code.DATABASE_UNAVAILABLE, Code.RECOVERING, Code.OVERLOADED)
ALWAYS_WRITES = (*ALWAYS, Code.FORBIDDEN, Code.READ_ONLY, Code.TOO_LARGE)

PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
HEADERS = {
    "ETag": {"description": "The object's generation.", "schema": {"type": "string"}},
    "Fabric-Seq": {
        "description": "Number of the last event in the answer's snapshot: watch from here.",
        "schema": {"type": "integer"},
    },
    "X-Request-Id": {"description": "Stands on every event of this request.", "schema": {"type": "string"}},
}
MEANINGS = {
    200: "As it is now.",
    201: "Made.",
    202: "Accepted; `operation` names the work that remains.",
    204: "Nothing remains to be done.",
    304: "Not changed.",
}


def plain(value: Any) -> str:
    """asyncpg's own kind of UUID, which orjson does not know."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in an answer")


def encode(body: Any) -> bytes:
    return orjson.dumps(body, default=plain, option=orjson.OPT_UTC_Z)


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(body), status_code=status, media_type="application/json", headers=dict(headers or {}))


def single(request: Request, body: Any, *, version: int | str, seq: int) -> Response:
    """One object with its ETag; 304 when the caller has it already."""
    headers = {"ETag": etag(version), "Fabric-Seq": str(seq)}
    if names(request.headers.get("if-none-match"), version):
        return Response(status_code=304, headers=headers)
    return json_response(body, headers=headers)


def page(items: Sequence[Any], *, next_cursor: str | None, as_of: int) -> Response:
    body = {"items": items, "next_cursor": next_cursor, "as_of": as_of}
    return json_response(body, headers={"Fabric-Seq": str(as_of)})


def example(code: Code) -> dict[str, Any]:
    verdict = VERDICTS[code]
    row = PROBLEMS[code]
    value = {
        "type": problem_type(code),
        "title": row.title,
        "status": row.status,
        "detail": row.title,
        "instance": "/v1/…",
        "code": code,
        "request_id": "0199d3a0-6c5e-7c31-9d4b-0f4e2f1f6a10",
        "retryable": verdict.retryable,
        "retry_after_ms": 1000 if row.status == 503 else None,
        "terminal_for": verdict.terminal_for,
    }
    return {"summary": row.title, "value": value}


def described(
    ok: Mapping[int, type[BaseModel] | None], *codes: Code, writes: bool = False
) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: what it answers when it works, and every code it may refuse with."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status, model in ok.items():
        responses[status] = {"description": MEANINGS[status], "headers": HEADERS}
        if model is not None:
            responses[status]["model"] = model
    by_status: dict[int, list[Code]] = {}
    for code in dict.fromkeys((*codes, *(ALWAYS_WRITES if writes else ALWAYS))):
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    for status, members in sorted(by_status.items()):
        responses[status] = {
            "description": "; ".join(f"`{code}`: {PROBLEMS[code].title}" for code in members),
            "content": {
                MEDIA_TYPE: {"schema": PROBLEM_REF, "examples": {str(code): example(code) for code in members}}
            },
        }
    return responses
