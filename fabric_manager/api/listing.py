"""Answers that show many things: their ETag, and 304 before any of them is read."""

import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from fastapi import Request, Response

from fabric_manager.api import answers
from fabric_manager.api.preconditions import etag, names
from fabric_manager.api.services import services_of
from fabric_manager.store import changes

Read = Callable[[Any], Awaitable[Mapping[str, Any]]]
DIGITS = 12


def question(request: Request, seen_by: Mapping[str, Any]) -> str:
    """A digest of what is asked, by whom, and of which release answers: another question never has the same ETag."""
    asked = [services_of(request).version, request.url.path, sorted(request.query_params.multi_items()), dict(seen_by)]
    return hashlib.sha256(answers.encode(asked)).hexdigest()[:DIGITS]


async def answer_many(
    request: Request,
    kinds: Collection[str],
    read: Read,
    *,
    seen_by: Mapping[str, Any],
    expiring: bool = False,
    timeless: bool = True,
) -> Response:
    """What `read` finds, with `as_of`. Not `timeless`: time alone changes it, so there is no ETag."""
    async with services_of(request).db.snapshot() as tx:
        standing = await changes.standing(tx, kinds, expiring=expiring)
        headers = {"Fabric-Seq": str(standing.head)}
        if timeless and standing.word is not None:
            version = f"{standing.word}-{question(request, seen_by)}"
            headers["ETag"] = etag(version)
            if names(request.headers.get("if-none-match"), version):
                return Response(status_code=304, headers=headers)
        body = await read(tx)
    return answers.json_response({**body, "as_of": standing.head}, headers=headers)
