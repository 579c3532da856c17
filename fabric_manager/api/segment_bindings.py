"""What is bound where: each segment with the attachment by which its host reaches it."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import Caller, within
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.switch_views import SegmentBindingPage, SegmentBindingView
from fabric_manager.api.views import picked
from fabric_manager.api.wire import Key, Name
from fabric_manager.domain.errors import Code
from fabric_manager.domain.lifecycle import TERMINAL, Phase
from fabric_manager.domain.switches import SegmentBinding
from fabric_manager.store.switches import BINDING

router = APIRouter(tags=["bindings"])


class BindingQuery(PageQuery):
    allocation: Key | None = None
    host: Name | None = None
    device: Name | None = None
    switch: Name | None = None
    phase: Literal[tuple(str(phase) for phase in Phase if phase not in TERMINAL)] | None = None  # type: ignore[valid-type]
    sort: Literal["created_at", "-created_at"] = "created_at"


def shown(binding: SegmentBinding) -> dict[str, Any]:
    return picked(SegmentBindingView, binding)


@router.get(
    "/bindings",
    operation_id="list_bindings",
    summary="List bindings",
    responses=described({200: SegmentBindingPage, 304: None}),
)
async def list_bindings(request: Request, caller: Caller, query: Annotated[BindingQuery, Query()]) -> Response:
    return await answer_page(request, BINDING, query, shown, bounds=within(caller))


@router.get(
    "/bindings/{segment_id}",
    operation_id="get_binding",
    summary="Get one binding, by its segment's id",
    responses=described({200: SegmentBindingView, 304: None}, Code.NOT_FOUND),
)
async def get_binding(request: Request, caller: Caller, segment_id: UUID) -> Response:
    return await answer_one(request, BINDING, "binding", str(segment_id), shown, bounds=within(caller))
