"""Is the process alive, can it serve, and which version is it."""

from fastapi import APIRouter, Response

from fabric_manager.api.answers import described, json_response
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import LiveView, ReadyCheckView, ReadyView, VersionView, picked
from fabric_manager.store.schema import SCHEMA_REVISION

open_router = APIRouter(tags=["service"])
router = APIRouter(tags=["service"], dependencies=[AUTHENTICATED])


@open_router.get(
    "/healthz",
    operation_id="get_liveness",
    summary="Whether the process is alive; asks nobody else",
    responses={200: {"model": LiveView, "description": "Alive."}},
)
async def get_liveness() -> Response:
    return json_response({"status": "ok"})


@open_router.get(
    "/readyz",
    operation_id="get_readiness",
    summary="Whether it can serve, and what is missing when it cannot",
    responses={
        200: {"model": ReadyView, "description": "Ready."},
        503: {"model": ReadyView, "description": "Not ready; `checks` say why."},
    },
)
async def get_readiness(services: WithServices) -> Response:
    readiness = await services.ready()
    body = picked(ReadyView, readiness, checks=[picked(ReadyCheckView, check) for check in readiness.checks])
    headers = {} if readiness.ready else {"Retry-After": "1"}
    return json_response(body, status=200 if readiness.ready else 503, headers=headers)


@router.get(
    "/version",
    operation_id="get_version",
    summary="Versions of the service, the API and the schema",
    responses=described({200: VersionView}),
)
async def get_version(services: WithServices) -> Response:
    return json_response({"version": services.version, "api": "v1", "schema_revision": SCHEMA_REVISION})
