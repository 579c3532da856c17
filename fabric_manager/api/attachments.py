"""Where a host reaches a device."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import AttachmentPage, AttachmentView, picked
from fabric_manager.api.wire import Name
from fabric_manager.domain.errors import Code
from fabric_manager.domain.inventory import Attachment
from fabric_manager.store.inventory import ATTACHMENT

router = APIRouter(tags=["attachments"], dependencies=[AUTHENTICATED])


class AttachmentQuery(PageQuery):
    device: Name | None = None
    host: Name | None = None
    kind: Literal["sld", "mld", "dcd"] | None = None
    sort: Literal["created_at", "-created_at"] = "created_at"


def shown(value: Attachment) -> dict[str, Any]:
    return picked(AttachmentView, value)


@router.get(
    "/attachments",
    operation_id="list_attachments",
    summary="List attachments",
    responses=described({200: AttachmentPage, 304: None}),
)
async def list_attachments(request: Request, query: Annotated[AttachmentQuery, Query()]) -> Response:
    return await answer_page(request, ATTACHMENT, query, shown)


@router.get(
    "/attachments/{attachment_id}",
    operation_id="get_attachment",
    summary="Get one attachment",
    responses=described({200: AttachmentView, 304: None}, Code.NOT_FOUND),
)
async def get_attachment(request: Request, attachment_id: UUID) -> Response:
    return await answer_one(request, ATTACHMENT, "attachment", str(attachment_id), shown)
