"""What the routes work with, handed in once when the application is built."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from fabric_manager.api.feed import Feed
from fabric_manager.api.tokens import TokenCache
from fabric_manager.store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCheck:
    """`detail` is the sentence an operator reads when it is not ok."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    ready: bool
    checks: tuple[ReadyCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """`wake` runs the local reconciler and event sequencer at once, instead of at their next tick."""

    db: Database
    identities: Callable[[], UUID]
    wake: Callable[[], None]
    tenants_auto_create: bool
    ready: Callable[[], Awaitable[Readiness]]
    version: str
    feed: Feed
    tokens: TokenCache


def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


async def provided(request: Request) -> Services:
    """Not a plain function: those are sent through a thread, for each request."""
    return services_of(request)


WithServices = Annotated[Services, Depends(provided)]
