"""Operations: the work that is going on, and how it ended."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from fabric_manager.api import answers, paging
from fabric_manager.api.answers import described
from fabric_manager.api.auth import Caller, within
from fabric_manager.api.reading import answer_page, not_found
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import OperationPage, OperationView, picked
from fabric_manager.api.waiting import WAIT_S_MAX, until
from fabric_manager.api.wire import Key, Name
from fabric_manager.domain.errors import Code
from fabric_manager.domain.lifecycle import Goal
from fabric_manager.domain.operation import UNFINISHED, Operation, OperationState
from fabric_manager.store import events, nouns
from fabric_manager.store.operations import OPERATION

router = APIRouter(tags=["operations"])


class OperationQuery(paging.PageQuery):
    state: OperationState | None = None
    goal: Goal | None = None
    allocation: Key | None = None
    fabric: Name | None = None
    sort: Literal["-created_at", "created_at"] = "-created_at"


class OperationWaitQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    wait: int = Field(0, ge=0, le=WAIT_S_MAX, description="Seconds to wait for the operation to finish.")


def shown(operation: Operation) -> dict[str, Any]:
    return picked(OperationView, operation)


@router.get(
    "/operations",
    operation_id="list_operations",
    summary="List operations, newest first",
    responses=described({200: OperationPage, 304: None}),
)
async def list_operations(request: Request, caller: Caller, query: Annotated[OperationQuery, Query()]) -> Response:
    return await answer_page(request, OPERATION, query, shown, bounds=within(caller))


@router.get(
    "/operations/{operation_id}",
    operation_id="get_operation",
    summary="Get one operation, or wait for its end",
    responses=described({200: OperationView, 304: None}, Code.NOT_FOUND),
)
async def get_operation(
    request: Request,
    operation_id: UUID,
    services: WithServices,
    caller: Caller,
    query: Annotated[OperationWaitQuery, Query()],
) -> Response:
    async def look() -> tuple[Operation, int]:
        async with services.db.snapshot() as tx:
            seq = await events.head(tx)
            operation = await nouns.one(tx, OPERATION, str(operation_id), within(caller))
        if operation is None:
            raise not_found("operation", str(operation_id))
        return operation, seq

    def ended(seen: tuple[Operation, int]) -> bool:
        return seen[0].state not in UNFINISHED

    operation, seq = await look()
    if query.wait and not ended((operation, seq)):
        operation, seq = await until(
            services.feed,
            operation.allocation,
            look,
            ended,
            wait_s=query.wait,
            same=("operation", operation_id, caller),
        )
    return answers.single(request, shown(operation), version=operation.generation, seq=seq)
