"""Everything that people declared, at once: written out, compared, and applied."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from fabric_manager.allocator.inventory import apply
from fabric_manager.api import answers
from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED, Operator, actor
from fabric_manager.api.declarations import Inventory
from fabric_manager.api.declaring import WithIfMatch
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import View
from fabric_manager.domain.errors import Code
from fabric_manager.store import declared, events

router = APIRouter(tags=["inventory"], dependencies=[AUTHENTICATED])


class FieldChangeView(View):
    field: str
    have: Any
    want: Any


class ChangeView(View):
    noun: str = Field(description="fabric, pool, device or host")
    name: str
    action: str = Field(description="create or change; nothing is deleted")
    fields: list[FieldChangeView]


class DiffView(View):
    dry_run: bool
    diff: list[ChangeView] = Field(description="In the order it is done; empty when everything is so already.")


class ApplyQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dry_run: bool = Field(False, description="Answer the diff and change nothing.")


@router.get(
    "/inventory",
    operation_id="get_inventory",
    summary="Export what people declared",
    description="In the form that PUT takes, in a fixed order, without what hardware tells.",
    responses=described({200: Inventory, 304: None}),
)
async def get_inventory(request: Request, services: WithServices) -> Response:
    async with services.db.snapshot() as tx:
        seq = await events.head(tx)
        whole, digest = await declared.export(tx)
    return answers.single(request, whole, version=digest, seq=seq)


@router.put(
    "/inventory",
    operation_id="put_inventory",
    summary="Bring the inventory to what a document says",
    description="All or nothing. What the document does not name is left alone: nothing is ever deleted by it. "
    "With `dry_run` the diff is only answered. `errors`, `noun` and `name` of a refusal name the thing.",
    responses=described({200: DiffView}, Code.STALE_GENERATION, Code.ILLEGAL_PHASE, writes=True),
)
async def put_inventory(
    *,
    request: Request,
    body: Inventory,
    query: Annotated[ApplyQuery, Query()],
    services: WithServices,
    caller: Operator,
    conditions: WithIfMatch,
) -> Response:
    diff = await apply(
        services.db,
        body.model_dump(mode="json", exclude_none=True),
        dry_run=query.dry_run,
        actor=actor(caller, request),
        identities=services.identities,
        conditions=conditions,
    )
    if not query.dry_run:
        services.wake()
    return answers.json_response({"dry_run": query.dry_run, "diff": diff})
