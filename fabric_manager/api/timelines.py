"""What happened to a key."""

from fastapi import APIRouter, Response

from fabric_manager.api.answers import described, json_response
from fabric_manager.api.auth import Caller, bounded
from fabric_manager.api.reading import not_found
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import TimelineView, entry_view
from fabric_manager.api.wire import AllocationKey
from fabric_manager.domain.errors import Code
from fabric_manager.store import allocations, events, timeline

router = APIRouter(tags=["allocations"])


@router.get(
    "/allocations/{allocation_key}/timeline",
    operation_id="get_allocation_timeline",
    summary="What happened, from the request to the command on the wire",
    description="Also of a key that was only ever refused.",
    responses=described({200: TimelineView}, Code.NOT_FOUND),
)
async def get_timeline(allocation_key: AllocationKey, services: WithServices, caller: Caller) -> Response:
    async with services.db.snapshot() as tx:
        seq = await events.head(tx)
        visible = not bounded(caller) or await allocations.get(tx, allocation_key, seen_by=caller) is not None
        story = await timeline.of_key(tx, allocation_key, seen_by=caller, events_only=not visible)
    if not story.entries:
        raise not_found("allocation", allocation_key)
    body = {
        "key": allocation_key,
        "entries": [entry_view(entry) for entry in story.entries],
        "truncated": story.truncated,
        "as_of": seq,
    }
    return json_response(body, headers={"Fabric-Seq": str(seq)})
