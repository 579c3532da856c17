"""Events: what changed, in order and without gaps: a page, a long poll for the next ones, or a stream."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from fabric_manager.api.answers import described, json_response
from fabric_manager.api.auth import Caller
from fabric_manager.api.event_reading import EventQuery, Found, latest, stored
from fabric_manager.api.event_stream import MEDIA_TYPE, STREAM, EventStream, prefers_stream, resume_after
from fabric_manager.api.feed import EVERYTHING, RECHECK_S
from fabric_manager.api.services import Services, WithServices
from fabric_manager.api.views import EventPage
from fabric_manager.domain.errors import Code
from fabric_manager.domain.selection import Selection

router = APIRouter(tags=["events"])

RESPONSES = described({200: EventPage}, Code.EVENTS_EXPIRED)
RESPONSES[200]["content"] = {MEDIA_TYPE: STREAM}


async def poll(services: Services, query: EventQuery, selection: Selection) -> Found:
    """The next events, or none once `wait` is over. What was searched in vain is not searched again."""
    ends_at = asyncio.get_running_loop().time() + query.wait
    with services.feed.watch(EVERYTHING) as bell:
        since = query.since
        if query.wait == 0 or since is None:
            found = await stored(services, selection, since, query.limit)
        else:
            await services.feed.polls.turn(query.wait)
            found = await latest(services, selection, since, query.limit)
        while query.wait and not found.items and not services.feed.closing:
            left_s = ends_at - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            if found.reached >= found.kept.head:
                await bell.wait(min(left_s, RECHECK_S))
            found = await latest(services, selection, found.reached, query.limit)
    return found


@router.get(
    "/events",
    operation_id="list_events",
    summary="Events after a number: a page, a long poll or a stream",
    description=(
        "Start from the `as_of` of a list and go on with `next_since`: nothing is missed and nothing doubled."
        " With `Accept: text/event-stream` the answer is a stream (server-sent events) that goes on with what"
        " happens; the `id` of each message is the number to resume after, as `Last-Event-ID` or `since`."
    ),
    responses=RESPONSES,
)
async def list_events(
    services: WithServices,
    caller: Caller,
    query: Annotated[EventQuery, Query()],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="For streams: the last `id` received; goes before `since`."),
    ] = None,
) -> Response:
    selection = query.selection(caller)
    if prefers_stream(accept):
        return await EventStream.after(services, selection, resume_after(last_event_id, query.since))
    found = await poll(services, query, selection)
    body = {
        "items": [told.fragment for told in found.items],
        "next_since": found.reached,
        "next_cursor": None,
        "as_of": found.kept.head,
    }
    return json_response(body, headers={"Fabric-Seq": str(found.kept.head)})
