"""How every noun of the inventory is written: PUT, DELETE, and their conditions."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Header, Request, Response

from fabric_manager.allocator import inventory
from fabric_manager.allocator.inventory import Conditions
from fabric_manager.api import answers
from fabric_manager.api.auth import actor
from fabric_manager.api.declarations import DeviceFacts, FabricFacts, HostFacts, PoolFacts
from fabric_manager.api.preconditions import etag, tags_of
from fabric_manager.api.problems import invalid
from fabric_manager.api.reading import not_found, version_of
from fabric_manager.api.services import Services, services_of
from fabric_manager.domain.actor import Principal
from fabric_manager.domain.errors import Code
from fabric_manager.store import events, nouns
from fabric_manager.store.nouns import Noun

T = TypeVar("T")
Facts = FabricFacts | PoolFacts | DeviceFacts | HostFacts

PUT_CODES = (Code.STALE_GENERATION, Code.ILLEGAL_PHASE, Code.NOT_FOUND)
DELETE_CODES = PUT_CODES

IfMatch = Annotated[str | None, Header(max_length=200, description="Only if it still has this ETag.")]
CreateOnly = Annotated[str | None, Header(max_length=200, description="`*`: only if there is none yet.")]


def conditions(if_match: IfMatch = None, if_none_match: CreateOnly = None) -> Conditions:
    return Conditions(if_match=tags_of(if_match), if_none_match=tags_of(if_none_match))


def only_if_match(if_match: IfMatch = None) -> Conditions:
    return Conditions(if_match=tags_of(if_match))


WithConditions = Annotated[Conditions, Depends(conditions)]
WithIfMatch = Annotated[Conditions, Depends(only_if_match)]


async def name_of(services: Services, noun: Noun[Any], what: str, ref: str) -> str:
    """The name that `ref` stands for; the id of nothing is no name."""
    try:
        UUID(ref)
    except ValueError:
        return ref
    async with services.db.snapshot() as tx:
        found = await nouns.one(tx, noun, ref)
    if found is None:
        raise not_found(what, ref)
    return str(found.name)


async def whole(
    services: Services, noun: Noun[T], what: str, ref: str, view: Callable[[T], Mapping[str, Any]], *, status: int
) -> Response:
    """The thing as it is now, with its ETag."""
    async with services.db.snapshot() as tx:
        seq = await events.head(tx)
        found = await nouns.one(tx, noun, ref)
    if found is None:
        raise not_found(what, ref)  # somebody deleted it just now
    body = view(found)
    return answers.json_response(body, status=status, headers={"ETag": etag(version_of(body)), "Fabric-Seq": str(seq)})


async def answer_put(
    request: Request,
    noun: Noun[T],
    what: str,
    ref: str,
    view: Callable[[T], Mapping[str, Any]],
    *,
    facts: Facts,
    caller: Principal,
    conditions: Conditions,
) -> Response:
    """Declare it: 201 when it is new, else 200; always the whole object."""
    services = services_of(request)
    name = await name_of(services, noun, what, ref)
    if facts.name not in (None, name):
        raise invalid("name", f"the path says {name!r}; leave it out, or say the same")
    created = await inventory.put(
        services.db,
        what,
        {**facts.model_dump(mode="json", exclude_none=True), "name": name},
        conditions=conditions,
        actor=actor(caller, request),
        identities=services.identities,
    )
    services.wake()
    return await whole(services, noun, what, name, view, status=201 if created else 200)


async def answer_delete(
    request: Request, what: str, ref: str, *, caller: Principal, conditions: Conditions
) -> Response:
    services = services_of(request)
    await inventory.delete(services.db, what, ref, conditions=conditions, actor=actor(caller, request))
    services.wake()
    return Response(status_code=204)
