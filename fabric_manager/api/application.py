"""The HTTP application, put together."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, FastAPI

from fabric_manager.api import (
    allocation_candidates,
    allocation_posts,
    allocations,
    attachments,
    bindings,
    description,
    devices,
    event_pages,
    extents,
    fabrics,
    glance,
    handlers,
    health,
    hosts,
    inventories,
    logical_devices,
    metrics,
    operations,
    pools,
    proofs,
    segment_bindings,
    switches,
    timelines,
)
from fabric_manager.api.accounting import Accounting
from fabric_manager.api.envelope import Envelope
from fabric_manager.api.feed import Feed
from fabric_manager.api.intake import Intake
from fabric_manager.api.services import Readiness, ReadyCheck, Services
from fabric_manager.api.tokens import TokenCache
from fabric_manager.store.database import Database

__all__ = ["Readiness", "ReadyCheck", "build", "openapi_document", "stop_waiting"]

NOUNS = (
    allocations,
    allocation_posts,
    allocation_candidates,
    bindings,
    timelines,
    pools,
    devices,
    logical_devices,
    extents,
    attachments,
    segment_bindings,
    switches,
    hosts,
    fabrics,
    inventories,
    operations,
    event_pages,
    glance,
    proofs,
    health,
)


def bare(*, identities: Callable[[], UUID]) -> FastAPI:
    """Routes, refusals and description, with nothing behind them yet."""
    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    app.include_router(health.open_router)
    app.include_router(metrics.router)
    v1 = APIRouter(prefix="/v1")
    for noun in NOUNS:
        v1.include_router(noun.router)
    app.include_router(v1)
    handlers.install(app)
    description.install(app)
    app.add_middleware(Intake)
    app.add_middleware(Accounting)
    app.add_middleware(Envelope, identities=identities)  # the last one added is the outermost
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with app.state.services.feed.running():
        yield


def build(
    *,
    db: Database,
    identities: Callable[[], UUID],
    wake: Callable[[], None],
    tenants_auto_create: bool,
    ready: Callable[[], Awaitable[Readiness]],
    version: str,
) -> FastAPI:
    """The application over `db`. `wake` is called after each write; `ready` answers /readyz."""
    app = bare(identities=identities)
    app.state.services = Services(
        db=db,
        identities=identities,
        wake=wake,
        tenants_auto_create=tenants_auto_create,
        ready=ready,
        version=version,
        feed=Feed(db),
        tokens=TokenCache(db),
    )
    return app


def stop_waiting(app: FastAPI) -> None:
    """Make long polls answer at once; call it before the server waits for its requests to end."""
    services = getattr(app.state, "services", None)  # that of metrics alone has none
    if services is not None:
        services.feed.close()


def openapi_document() -> dict[str, Any]:
    """What /openapi.json serves, without a database."""
    return bare(identities=uuid4).openapi()
