"""What may come in as a body: bounded, JSON in UTF-8, and with one meaning only."""

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabric_manager.api.envelope import header
from fabric_manager.api.problems import invalid, problem_response
from fabric_manager.domain.errors import Code, FabricError

BODY_MAX = 64 * 1024
DEPTH_MAX = 32
ITEMS_MAX = 1000  # of one array or object
TEXT_MAX = 4096  # characters of one string
RECEIVE_S_MAX = 10.0
METHODS = {"PUT", "POST", "PATCH"}


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


def examine(value: Any, path: str = "", depth: int = 0) -> None:
    """Bound what the parser let through, and refuse text that PostgreSQL or a terminal would choke on."""
    where = path or "body"
    if depth > DEPTH_MAX:
        raise invalid(where.partition(".")[0], f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, str):
        examine_text(value, where)
    elif isinstance(value, dict | list):
        if len(value) > ITEMS_MAX:
            raise invalid(where, f"holds more than {ITEMS_MAX} items")
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(name, str):
                examine_text(name, where)
            examine(item, f"{path}.{name}" if path else str(name), depth + 1)


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


async def read(scope: Scope, receive: Receive) -> bytes:
    """The whole body, unless it is too large or too slow."""
    too_large = FabricError(Code.TOO_LARGE, f"a body holds at most {BODY_MAX} bytes", body_bytes_max=BODY_MAX)
    length = header(scope, b"content-length")
    if length is not None and length.isdigit() and int(length[:20]) > BODY_MAX:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(RECEIVE_S_MAX):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > BODY_MAX:
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not needs_check(scope):
            await self.app(scope, receive, send)
            return
        try:
            body = await read(scope, receive)
            if body:
                check_content_type(header(scope, b"content-type"))
                examine(parse(body))
        except FabricError as error:
            response = problem_response(error, instance=scope["path"], request_id=scope["state"]["request_id"])
            await response(scope, receive, send)
            return
        await self.app(scope, again(body, receive), send)
