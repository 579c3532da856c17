"""Cursors: where the last page ended, opaque to callers."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from fabric_manager.api.problems import invalid
from fabric_manager.store.nouns import Place

T = TypeVar("T")

LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
CURSOR_MAX = 1000
RANGES = {"smallint": 1 << 15, "bigint": 1 << 63}


class PageQuery(BaseModel):
    """What every list takes. Lists refuse parameters they do not know."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX, description="At most this many items.")
    cursor: str | None = Field(
        None, min_length=1, max_length=CURSOR_MAX, description="`next_cursor` of the page before."
    )


def encode(place: Place) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def decode(cursor: str | None, kinds: Sequence[str]) -> Place | None:
    """The place in `cursor`, whose values have the SQL types `kinds`. Raises FabricError when it is none of ours."""
    if cursor is None:
        return None
    try:
        values = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(values, list) or len(values) != len(kinds):
            raise ValueError("wrong shape")
        return tuple(checked(value, kind) for value, kind in zip(values, kinds, strict=True))
    except (ValueError, binascii.Error) as error:
        raise invalid("cursor", "is not a cursor of this list; start anew without one") from error


def checked(value: object, kind: str) -> str:
    if not isinstance(value, str) or "\x00" in value:
        raise ValueError("not text")
    if kind == "uuid":
        UUID(value)
    elif kind in RANGES and not -RANGES[kind] <= int(value) < RANGES[kind]:
        raise ValueError("out of range")
    return value


def next_cursor(items: Sequence[T], limit: int, place: Callable[[T], Place]) -> str | None:
    """Where the next page starts, given up to `limit` + 1 `items`; None when this one is the last."""
    return encode(place(items[limit - 1])) if len(items) > limit else None
