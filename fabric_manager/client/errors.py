"""What a call can end in, other than its answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

FIELDS = frozenset(
    {
        "type",
        "title",
        "status",
        "detail",
        "instance",
        "code",
        "request_id",
        "retryable",
        "retry_after_ms",
        "terminal_for",
    }
)
TEXT_LENGTH_MAX = 200


class ClientError(Exception):
    """Base of all this package raises for a call that did not go through."""


class UnreachableError(ClientError):
    """No service answered. The call may have been carried out all the same: ask again with the same key."""

    def __init__(self, servers: Sequence[str], reason: str) -> None:
        super().__init__(f"no answer from {', '.join(servers)}: {reason}")
        self.servers = tuple(servers)


class UnexpectedAnswerError(ClientError):
    """What answered does not speak the contract."""


class ProblemError(ClientError):
    """The service refused. `facts` are the problem's members beyond the ones that have a field here."""

    def __init__(
        self,
        *,
        status: int,
        code: str,
        title: str = "",
        detail: str = "",
        retryable: bool = False,
        retry_after_ms: int | None = None,
        terminal_for: str | None = None,
        request_id: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail or title or code)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        self.terminal_for = terminal_for
        self.request_id = request_id
        self.facts = facts or {}


def problem_of(response: httpx.Response) -> ProblemError:
    """The problem in an answer; one named `http_502` or the like when something else than the service answered."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or "code" not in body:
        return ProblemError(
            status=response.status_code,
            code=f"http_{response.status_code}",
            title=response.reason_phrase,
            detail=response.text[:TEXT_LENGTH_MAX].strip(),
            retry_after_ms=_retry_after_ms(response),
        )
    return ProblemError(
        status=response.status_code,
        code=str(body["code"]),
        title=body.get("title") or "",
        detail=body.get("detail") or "",
        retryable=bool(body.get("retryable")),
        retry_after_ms=body.get("retry_after_ms") or _retry_after_ms(response),
        terminal_for=body.get("terminal_for"),
        request_id=body.get("request_id"),
        facts={name: value for name, value in body.items() if name not in FIELDS},
    )


def _retry_after_ms(response: httpx.Response) -> int | None:
    text = response.headers.get("Retry-After", "")
    return int(text) * 1000 if text.isascii() and text.isdigit() else None
