"""Each request's line in the log, and what is counted of it. Routes are named by template: paths hold keys."""

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabric_manager.telemetry import metrics

log = logging.getLogger("fabric_manager.access")

NO_ROUTE = "none"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
PROBES = frozenset({"get_liveness", "get_readiness", "get_metrics"})


class Accounting:
    """Inside the envelope, which knows the request's id, and around everything that answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status, answer_s = 500, 0.0  # what the envelope answers when nothing was begun

        async def send_and_look(message: Message) -> None:
            nonlocal status, answer_s
            if message["type"] == "http.response.start":
                status, answer_s = message["status"], time.perf_counter() - began
            await send(message)

        try:
            await self.app(scope, receive, send_and_look)
        finally:
            took_s = time.perf_counter() - began
            account(scope, status=status, answer_s=answer_s or took_s, took_s=took_s)


def account(scope: Scope, *, status: int, answer_s: float, took_s: float) -> None:
    route = scope.get("route")
    operation = getattr(route, "operation_id", None) or getattr(route, "name", None) or NO_ROUTE
    method = scope["method"] if scope["method"] in METHODS else "other"
    metrics.HTTP_REQUESTS.labels(operation=operation, method=method, status=f"{status // 100}xx").inc()
    metrics.HTTP_SECONDS.labels(operation=operation, method=method).observe(answer_s)
    line: dict[str, Any] = {
        "method": method,
        "route": template(scope["path"], getattr(route, "path", None)),
        "status": status,
        "duration_ms": round(took_s * 1000, 3),
    }
    log.log(logging.DEBUG if operation in PROBES else logging.INFO, "request answered", extra=line)


def template(path: str, own: str | None) -> str:
    """The route's template with its router's prefix, which only the path has: /v1/allocations/{allocation_key}."""
    if own is None:
        return NO_ROUTE
    parts = path.split("/")
    return "/".join(parts[: len(parts) - own.count("/")]) + own
