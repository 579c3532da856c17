"""Tombstones run out: then the key is free, lists pass over what it stood for, and nothing else changes."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from fabric_manager.domain.lifecycle import Phase
from fabric_manager.store import allocations, verbs
from fabric_manager.store.database import Database
from tests.racks import a_fabric
from tests.store.allocations import EVERYBODY, Life


async def a_life(db: Database, identities: Callable[[], UUID]) -> Life:
    return Life(db=db, identities=identities, owned=await a_fabric(db, identities))


async def listed(db: Database, **wanted: Any) -> list[UUID]:
    async with db.snapshot() as tx:
        found = await allocations.page(tx, allocations.Filter(**wanted), seen_by=EVERYBODY, after=None, limit=100)
    return [allocation.id for allocation in found]


async def over(life: Life, key: str) -> None:
    await life.run("UPDATE allocation_key SET expires_at = now() - interval '1 s' WHERE key = :key", key=key)


async def test_what_is_over_leaves_the_lists_and_frees_its_key(db: Database, identities: Callable[[], UUID]) -> None:
    life = await a_life(db, identities)
    first = await life.in_phase("a", Phase.RELEASED)
    kept = await life.in_phase("b", Phase.RELEASED)
    await life.release("never-seen")
    await over(life, "a")
    await over(life, "never-seen")
    assert await listed(db) == [kept.id], "even before anybody sweeps"
    assert await verbs.forget(db, batch_max=10) == 2
    assert await verbs.forget(db, batch_max=10) == 0
    assert await listed(db) == [kept.id]
    assert await life.column("SELECT key FROM allocation WHERE forgotten") == ["a"]
    assert await life.column("SELECT count(*) FROM segment WHERE forgotten") == [1]

    again = await life.claim("a")
    assert again.id != first.id
    assert (await life.get("a")).id == again.id
    assert await listed(db) == [again.id, kept.id]
    assert (await life.ask("never-seen")).created
    assert await life.column("SELECT id FROM allocation WHERE key = 'a' ORDER BY id") == [first.id, again.id]
    await life.sums_are_right()


async def test_nothing_is_forgotten_while_its_tombstone_stands(db: Database, identities: Callable[[], UUID]) -> None:
    life = await a_life(db, identities)
    await life.in_phase("a", Phase.RELEASED)
    await life.in_phase("b", Phase.BOUND)
    assert await verbs.forget(db, batch_max=10) == 0
    assert (await life.get("a")).phase is Phase.RELEASED
