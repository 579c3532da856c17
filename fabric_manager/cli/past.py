"""What happened last, as a few lines."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from fabric_manager.cli import formatting
from fabric_manager.client import FabricEvent, FabricManager, ProblemError

SHOWN = 10
WINDOWS = (1_000, 20_000)  # how many events back is looked: further only when nearer there are too few
PAGE_ITEMS = 1000


async def latest_events(manager: FabricManager, where: Mapping[str, str]) -> Sequence[FabricEvent]:
    """The last SHOWN events about something, oldest first, of those that are still kept and not too far back."""
    head = await manager.events.head()
    found: list[FabricEvent] = []
    for window in WINDOWS:
        found = await _since(manager, max(head - window, 0), head, where)
        if len(found) >= SHOWN or window >= head:
            break
    return found[-SHOWN:]


async def _since(manager: FabricManager, since: int, head: int, where: Mapping[str, str]) -> list[FabricEvent]:
    found: list[FabricEvent] = []
    while since < head:
        try:
            page = await manager.events.page(since=since, where=where, limit=PAGE_ITEMS)
        except ProblemError as problem:
            oldest = problem.facts.get("oldest_seq")
            if problem.code != "events_expired" or not isinstance(oldest, int) or oldest <= since + 1:
                raise
            since = oldest - 1
            continue
        found += page.items
        if page.next_since <= since:
            break
        since = page.next_since
    return found


def sentences(events: Sequence[FabricEvent], now: datetime) -> Iterator[str]:
    if not events:
        yield f"none among the last {WINDOWS[-1]} changes"
        return
    rows = (
        (
            f"{formatting.age(each.at, now)} ago",
            str(each.seq),
            each.type,
            each.key or formatting.NOTHING,
            formatting.facts(each.after or {}),
            str(each.actor),
        )
        for each in events
    )
    yield from formatting.table(("AGE", "NUMBER", "TYPE", "KEY", "CHANGED TO", "BY"), rows).splitlines()
