"""What may come in as a body: bounded, JSON in UTF-8, and with one meaning only."""

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabric_manager.api.envelope import header
from fabric_manager.api.problems import invalid, problem_response
from fabric_manager.domain.errors import Code, FabricError

DEPTH_MAX = 32
TEXT_MAX = 4096  # characters of one string
RECEIVE_S_MAX = 10.0
METHODS = {"PUT", "POST", "PATCH"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`items_max` is of one array or object."""

    body_bytes_max: int
    items_max: int


REQUEST = Limits(body_bytes_max=64 * 1024, items_max=1000)
# Paths that take whole files: a rack's description is longer than any request. Few are read at a time.
LARGE = {"/v1/inventory": Limits(body_bytes_max=8 * 1024 * 1024, items_max=20_000)}
LARGE_AT_ONCE_MAX = 2


class RepeatedError(ValueError):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedError(next(name for name in names if names.count(name) > 1))
    return members


def finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")


def parse(body: bytes) -> Any:
    """The one value that `body` means. Raises FabricError validation_failed that names what is wrong."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid("body", f"not UTF-8 at byte {error.start}") from error
    try:
        return json.loads(text, object_pairs_hook=once, parse_float=finite, parse_constant=no_constant)
    except RepeatedError as error:
        raise invalid(error.name, "appears twice in one object") from error
    except RecursionError as error:
        raise invalid("body", f"nested deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:
        raise invalid("body", f"not JSON: {error}") from error


def examine(value: Any, path: str = "", depth: int = 0, *, items_max: int) -> None:
    """Bound what the parser let through, and refuse text that PostgreSQL or a terminal would choke on."""
    where = path or "body"
    if depth > DEPTH_MAX:
        raise invalid(where.partition(".")[0], f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, str):
        examine_text(value, where)
    elif isinstance(value, dict | list):
        if len(value) > items_max:
            raise invalid(where, f"holds more than {items_max} items")
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(name, str):
                examine_text(name, where)
            examine(item, f"{path}.{name}" if path else str(name), depth + 1, items_max=items_max)


def examine_text(text: str, where: str) -> None:
    if len(text) > TEXT_MAX:
        raise invalid(where, f"longer than {TEXT_MAX} characters")
    if "\x00" in text:
        raise invalid(where, "holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise invalid(where, "holds half of a surrogate pair, which is no character")


def check_content_type(given: str | None) -> None:
    kind, _, parameters = (given or "").partition(";")
    charset = parameters.strip().lower()
    if kind.strip().lower() != "application/json" or charset.replace('"', "") not in ("", "charset=utf-8"):
        raise invalid("Content-Type", "a body is application/json in UTF-8")


def check(scope: Scope, body: bytes, limits: Limits) -> None:
    """Raises FabricError validation_failed."""
    if body:
        check_content_type(header(scope, b"content-type"))
        examine(parse(body), items_max=limits.items_max)


async def read(scope: Scope, receive: Receive, body_max: int) -> bytes:
    """The whole body, unless it is too large or too slow."""
    too_large = FabricError(Code.TOO_LARGE, f"a body holds at most {body_max} bytes", body_bytes_max=body_max)
    length = header(scope, b"content-length")
    if length is not None and length.isdigit() and int(length[:20]) > body_max:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(RECEIVE_S_MAX):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > body_max:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise invalid("body", f"did not arrive within {RECEIVE_S_MAX:.0f} s") from error


def again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out `body` once more, and then whatever the connection says."""
    pending = True

    async def replay() -> Message:
        nonlocal pending
        if pending:
            pending = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


def needs_check(scope: Mapping[str, Any]) -> bool:
    return scope["type"] == "http" and scope["method"] in METHODS


class Intake:
    """Lets only bodies through that the routes' models can read in one way."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._large = asyncio.Semaphore(LARGE_AT_ONCE_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not needs_check(scope):
            await self.app(scope, receive, send)
            return
        try:
            body = await self._checked(scope, receive)
        except FabricError as error:
            response = problem_response(error, instance=scope["path"], request_id=scope["state"]["request_id"])
            await response(scope, receive, send)
            return
        await self.app(scope, again(body, receive), send)

    async def _checked(self, scope: Scope, receive: Receive) -> bytes:
        limits = LARGE.get(scope["path"])
        if limits is None:
            body = await read(scope, receive, REQUEST.body_bytes_max)
            check(scope, body, REQUEST)
            return body
        if self._large.locked():
            raise FabricError(Code.OVERLOADED, "other large bodies are being read; try again", retry_after_ms=1000)
        async with self._large:
            body = await read(scope, receive, limits.body_bytes_max)
            await asyncio.to_thread(check, scope, body, limits)  # the event loop has others to serve
        return body
