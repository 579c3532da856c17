"""Around every request: its id, the headers that keep browsers careful, and an answer when we made a mistake."""

import logging
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabric_manager.api.problems import internal_response
from fabric_manager.telemetry.logs import about

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
CACHED = "/docs/assets/"  # the only thing that may be kept by a browser


def header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


class Envelope:
    """Outermost. A caller's X-Request-Id is used when it is printable and short, else one is made."""

    def __init__(self, app: ASGIApp, *, identities: Callable[[], UUID]) -> None:
        self.app = app
        self.identities = identities

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = header(scope, b"x-request-id")
        request_id = given if given and REQUEST_ID.fullmatch(given) else str(self.identities())
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], *self.headers(scope, message["headers"], request_id)]
            await send(message)

        with about(request_id=request_id):
            try:
                await self.app(scope, receive, send_with_headers)
            except Exception:
                if started:
                    raise
                log.exception(
                    "a request failed unexpectedly", extra={"method": scope["method"], "path": scope["path"][:200]}
                )
                response = internal_response(instance=scope["path"], request_id=request_id)
                await response(scope, receive, send_with_headers)

    def headers(self, scope: Scope, present: Any, request_id: str) -> list[tuple[bytes, bytes]]:
        added = [(b"x-request-id", request_id.encode()), *HEADERS]
        if not any(name == b"cache-control" for name, _ in present):
            kept = scope["path"].startswith(CACHED)
            added.append((b"cache-control", b"public, max-age=86400" if kept else b"no-store"))
        return added
