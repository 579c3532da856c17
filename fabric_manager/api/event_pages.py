"""Events: what changed, in order and without gaps; a page, or a long poll for the next ones."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fabric_manager.api.answers import described, json_response
from fabric_manager.api.auth import Caller
from fabric_manager.api.feed import EVERYTHING
from fabric_manager.api.paging import LIMIT_DEFAULT, LIMIT_MAX
from fabric_manager.api.services import Services, WithServices
from fabric_manager.api.views import EventPage, event_view
from fabric_manager.api.waiting import WAIT_S_MAX, until
from fabric_manager.domain.actor import Principal
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.operation import FabricEvent
from fabric_manager.store import events
from fabric_manager.store.events import Range

router = APIRouter(tags=["events"])

SEQ_MAX = (1 << 53) - 1
KINDS_MAX = 16

Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_-]{0,63}$")]
Seen = tuple[list[FabricEvent], Range]


class EventQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    since: int | None = Field(
        None, ge=0, le=SEQ_MAX, description="Events numbered above this; the oldest kept when absent."
    )
    wait: int = Field(0, ge=0, le=WAIT_S_MAX, description="Seconds to wait when there are none yet.")
    kind: list[Kind] = Field(default=[], max_length=KINDS_MAX, description="Kinds of object; repeat for several.")
    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)


def check_kept(since: int, kept: Range) -> None:
    """Raises FabricError events_expired: the caller missed some, or its numbers are of another database."""
    if kept.oldest - 1 <= since <= kept.head:
        return
    raise FabricError(
        Code.EVENTS_EXPIRED,
        "events after this number are gone; read the objects anew and go on from their as_of"
        if since < kept.oldest
        else "this number is above the last event; the numbering was reset. Read the objects anew",
        oldest_seq=kept.oldest,
        head_seq=kept.head,
    )


async def look(services: Services, query: EventQuery, caller: Principal) -> Seen:
    async with services.db.snapshot() as tx:
        kept = await events.kept(tx)
        since = kept.oldest - 1 if query.since is None else query.since
        check_kept(since, kept)
        found = await events.page(tx, since=since, kinds=query.kind, seen_by=caller, limit=query.limit)
    return found, kept


@router.get(
    "/events",
    operation_id="list_events",
    summary="Events after a number, or wait for the next",
    description="Start from the `as_of` of a list and go on with `next_since`: nothing is missed and nothing doubled.",
    responses=described({200: EventPage}, Code.EVENTS_EXPIRED),
)
async def list_events(services: WithServices, caller: Caller, query: Annotated[EventQuery, Query()]) -> Response:
    found, kept = await until(
        services.feed,
        EVERYTHING,
        lambda: look(services, query, caller),
        lambda seen: bool(seen[0]),
        wait_s=query.wait,
    )
    full = len(found) == query.limit
    body = {
        "items": [event_view(event) for event in found],
        "next_since": found[-1].seq if full else kept.head,
        "next_cursor": None,
        "as_of": kept.head,
    }
    return json_response(body, headers={"Fabric-Seq": str(kept.head)})
