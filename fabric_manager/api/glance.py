"""The whole at a glance, for dashboards: cheap to ask again, each from one snapshot."""

from typing import Any

from fastapi import APIRouter, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import Caller
from fabric_manager.api.glance_views import (
    AlarmsView,
    SummaryView,
    TopologyView,
    alarm_view,
    summary_view,
    topology_view,
)
from fabric_manager.api.listing import answer_many
from fabric_manager.store import alarms, events, summary, topology
from fabric_manager.store.nouns import EVERYTHING

router = APIRouter()


@router.get(
    "/summary",
    operation_id="get_summary",
    summary="Sums over everything",
    description="From counters and from what is live; history does not make it slower.",
    responses=described({200: SummaryView}),
    tags=["summary"],
)
async def get_summary(request: Request, _caller: Caller) -> Response:
    async def read(tx: Any) -> dict[str, Any]:
        return summary_view(await summary.read(tx))

    return await answer_many(request, summary.KINDS, read, seen_by=EVERYTHING, timeless=False)  # ages grow


@router.get(
    "/topology",
    operation_id="get_topology",
    summary="The graph of fabrics, switches, devices and hosts",
    responses=described({200: TopologyView, 304: None}),
    tags=["topology"],
)
async def get_topology(request: Request, _caller: Caller) -> Response:
    async def read(tx: Any) -> dict[str, Any]:
        return topology_view(await topology.read(tx))

    return await answer_many(request, topology.KINDS, read, seen_by=EVERYTHING)


@router.get(
    "/alarms",
    operation_id="list_alarms",
    summary="Conditions that want somebody's eyes now",
    description="A condition that is over is no longer here; events tell when it came and went.",
    responses=described({200: AlarmsView}),
    tags=["alarms"],
)
async def list_alarms(request: Request, caller: Caller) -> Response:
    async def read(tx: Any) -> dict[str, Any]:
        found, truncated = await alarms.read(tx, seen_by=caller)
        return {"items": [alarm_view(alarm) for alarm in found], "truncated": truncated}

    return await answer_many(request, (), read, seen_by=events.bounds(caller), timeless=False)
