"""What Prometheus reads. Of the database as far as it answers in time; of the process always."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Depends, FastAPI, Request, Response

from fabric_manager.api.auth import bearer
from fabric_manager.api.services import WithServices
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store import measured, tokens
from fabric_manager.store.database import Database
from fabric_manager.telemetry import metrics
from fabric_manager.telemetry.metrics import Reading, Sample

log = logging.getLogger(__name__)

TOKEN_S_MAX = 0.8  # both together end a scrape in less than 3 s, whatever the database does
READ_S_MAX = 1.2
TRUSTED_S = 3600.0
TRUSTED_MAX = 64


class Scrapers:
    """Who may read metrics. While the database is away, whoever could within the last hour still may."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    async def __call__(self, request: Request) -> None:
        """Raises FabricError unauthenticated, or database_unavailable for a token not seen lately."""
        now = asyncio.get_running_loop().time()
        token = tokens.digest(request.headers.get("authorization", "").partition(" ")[2].strip())
        try:
            async with asyncio.timeout(TOKEN_S_MAX):
                await bearer(request)
        except TimeoutError as error:
            if self._until.get(token, 0.0) < now:
                raise FabricError(
                    Code.DATABASE_UNAVAILABLE,
                    "the database does not answer; the token is not known",
                    retry_after_ms=1000,
                ) from error
            return
        except FabricError as error:
            if not error.retryable:
                self._until.pop(token, None)
            if self._until.get(token, 0.0) < now:
                raise
            return
        self._until = {known: until for known, until in self._until.items() if until > now}
        if len(self._until) < TRUSTED_MAX or token in self._until:
            self._until[token] = now + TRUSTED_S


router = APIRouter()


@router.get(
    "/metrics",
    operation_id="get_metrics",
    include_in_schema=False,
    dependencies=[Depends(Scrapers())],
)
async def get_metrics(services: WithServices) -> Response:
    return await scraped(services.db)


def apart(db: Database) -> FastAPI:
    """The application of an address of its own: metrics for whoever can reach it, and nothing else."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/metrics", operation_id="get_metrics")
    async def get_metrics_apart() -> Response:
        return await scraped(db)

    return app


async def scraped(db: Database) -> Response:
    found: dict[Reading, Sequence[Sample]] = {**pools(db), metrics.DATABASE_UP: [((), 1.0)]}
    try:
        async with asyncio.timeout(READ_S_MAX):
            found |= await from_database(db)
    except (FabricError, TimeoutError) as error:
        log.warning("metrics without those of the database", extra={"why": str(error) or "it does not answer in time"})
        found[metrics.DATABASE_UP] = [((), 0.0)]
    return Response(metrics.exposition(found), media_type=metrics.CONTENT_TYPE)


async def from_database(db: Database) -> Mapping[Reading, Sequence[Sample]]:
    async with db.snapshot() as tx:
        return await measured.readings(tx)


def pools(db: Database) -> Mapping[Reading, Sequence[Sample]]:
    uses = db.pools()
    return {
        metrics.DATABASE_CONNECTIONS: [
            sample
            for pool in uses
            for sample in (((pool.use, "busy"), pool.busy), ((pool.use, "idle"), pool.open - pool.busy))
        ],
        metrics.DATABASE_CONNECTIONS_MAX: [((pool.use,), pool.connections_max) for pool in uses],
        metrics.DATABASE_WAITERS: [((pool.use,), pool.waiting) for pool in uses],
    }
