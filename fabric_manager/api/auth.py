"""Who calls, and what that principal may do."""

import re
from typing import Annotated

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from fabric_manager.api.handlers import request_id
from fabric_manager.api.services import services_of
from fabric_manager.domain.actor import Actor, Principal, Role
from fabric_manager.domain.allocation import Allocation, Order
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.telemetry.logs import note

TOKEN = re.compile(r"fm_[A-Za-z0-9-]{1,64}_[A-Za-z0-9_-]{16,128}")
READ_ONLY = frozenset({Role.VIEWER})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN, Role.BREAKGLASS})


class Bearer(SecurityBase):
    """Answers the token's owner. Trouble with the database is 503, never 401: the token may be good."""

    def __init__(self) -> None:
        self.model = HTTPBearer(description="An API token, `fm_…`. `serve` writes the first one to a file.")
        self.scheme_name = "bearer"

    async def __call__(self, request: Request) -> Principal:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise FabricError(Code.UNAUTHENTICATED, "send a token: Authorization: Bearer fm_…")
        principal = None
        if TOKEN.fullmatch(token.strip()):
            principal = await services_of(request).tokens.owner(token.strip())
        if principal is None:
            raise FabricError(Code.UNAUTHENTICATED, "the token is unknown, expired or revoked")
        note(actor=principal.name, key=request.path_params.get("allocation_key"))
        return principal


bearer = Bearer()
AUTHENTICATED = Depends(bearer)
Caller = Annotated[Principal, AUTHENTICATED]


async def writer(caller: Caller) -> Principal:
    """A caller that may change something."""
    if caller.role in READ_ONLY:
        raise FabricError(Code.FORBIDDEN, f"the role {caller.role} reads only")
    return caller


Writer = Annotated[Principal, Depends(writer)]


def operator(caller: Caller) -> Principal:
    """A caller that may change what all others share."""
    if caller.role not in OPERATORS or bounded(caller):
        raise FabricError(Code.FORBIDDEN, "the inventory is changed by operators and admins without bounds")
    return caller


Operator = Annotated[Principal, Depends(operator)]


def actor(principal: Principal, request: Request) -> Actor:
    return Actor(name=principal.name, request_id=request_id(request))


def bounded(principal: Principal) -> bool:
    return principal.tenant is not None or principal.cluster is not None or principal.host is not None


def within(principal: Principal) -> dict[str, str]:
    """The bounds it has, by the names that nouns know them by."""
    every = {"sees_tenant": principal.tenant, "sees_cluster": principal.cluster, "sees_host": principal.host}
    return {name: bound for name, bound in every.items() if bound is not None}


def sees(principal: Principal, allocation: Allocation) -> bool:
    cluster = allocation.consumer.cluster if allocation.consumer else None
    return (
        principal.tenant in (None, allocation.tenant)
        and principal.cluster in (None, cluster)
        and principal.host in (None, allocation.host)
    )


def check_may_order(principal: Principal, order: Order) -> None:
    """A bounded principal orders within its bounds. Raises FabricError forbidden."""
    cluster = order.consumer.cluster if order.consumer else None
    bounds = (
        ("tenant", principal.tenant, order.tenant),
        ("consumer.cluster", principal.cluster, cluster),
        ("host", principal.host, order.host),
    )
    for field, may, wants in bounds:
        if may not in (None, wants):
            raise FabricError(Code.FORBIDDEN, f"this token orders only with {field} {may!r}", field=field)


def tombstone_scope(principal: Principal) -> str:
    """Whom a DELETE of an unknown key binds."""
    if principal.tenant is not None:
        return f"tenant:{principal.tenant}"
    if principal.cluster is not None:
        return f"cluster:{principal.cluster}"
    if principal.host is not None:
        return f"host:{principal.host}"
    return "any"
