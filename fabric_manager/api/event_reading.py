"""Where the next events come from: the process's own memory, else the database."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fabric_manager.api.paging import LIMIT_DEFAULT, LIMIT_MAX
from fabric_manager.api.services import Services
from fabric_manager.api.telling import Told
from fabric_manager.api.waiting import WAIT_S_MAX
from fabric_manager.domain.actor import Principal
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.selection import EXACT, Selection
from fabric_manager.store import events
from fabric_manager.store.events import Range

SEQ_MAX = (1 << 53) - 1
KINDS_MAX = 16
FILTER_LENGTH_MAX = 253

Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_-]{0,63}$")]
Wish = Annotated[str, StringConstraints(min_length=1, max_length=FILTER_LENGTH_MAX, pattern=r"^[^\x00]*$")] | None


class EventQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    since: int | None = Field(
        None,
        ge=0,
        le=SEQ_MAX,
        description="Events numbered above this. When absent: a page begins with the oldest kept, a stream with now.",
    )
    wait: int = Field(
        0, ge=0, le=WAIT_S_MAX, description="Seconds to wait when there are none yet. A stream always waits."
    )
    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX, description="At most this many on a page.")
    kind: list[Kind] = Field(default=[], max_length=KINDS_MAX, description="Kinds of object; repeat for several.")
    type: Wish = Field(None, description="Like `allocation.bound`.")
    key: Wish = Field(None, description="About this allocation.")
    claim_uid: Wish = Field(None, description="About the allocations of this consumer.")
    cluster: Wish = Field(None, description="About allocations of this cluster.")
    tenant: Wish = Field(None, description="About allocations of this tenant.")
    host: Wish = Field(None, description="About this host, by name.")
    device: Wish = Field(None, description="About this device, by name.")
    pool: Wish = Field(None, description="About this pool, by name.")

    def selection(self, caller: Principal) -> Selection:
        return Selection(seen_by=caller, kinds=self.kind, **{name: getattr(self, name) for name in EXACT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`reached` is the number up to which there are no others."""

    items: list[Told]
    reached: int
    kept: Range


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


async def stored(services: Services, selection: Selection, since: int | None, limit: int) -> Found:
    """As the database has it now. Raises FabricError events_expired."""
    async with services.db.snapshot() as tx:
        kept = await events.kept(tx)
        start = kept.oldest - 1 if since is None else since
        check_kept(start, kept)
        page = await events.page(tx, selection, since=start, head=kept.head, limit=limit)
    return Found(items=[Told(event) for event in page.items], reached=page.reached, kept=kept)


async def latest(services: Services, selection: Selection, since: int, limit: int) -> Found:
    """For who waits: from memory, and while that does not reach back to `since`, a page of the database in its turn.

    Raises FabricError events_expired.
    """
    tail = services.feed.tail
    if tail.head is not None and tail.covers(since):
        kept = Range(head=tail.head, oldest=tail.oldest)
        check_kept(since, kept)
        items, reached = tail.after(since, selection, limit=limit)
        return Found(items=items, reached=reached, kept=kept)
    return await services.feed.reads.read(lambda: stored(services, selection, since, limit))
