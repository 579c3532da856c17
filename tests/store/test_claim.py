"""The claim function, straight on PostgreSQL."""

import asyncio
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest

from fabric_manager.allocator.claim import Claimed, claim
from fabric_manager.allocator.release import release
from fabric_manager.domain.allocation import Order
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import GiB
from fabric_manager.store.database import Database
from tests.racks import ACTOR, a_fabric

Identities = Callable[[], UUID]


async def ask(db: Database, identities: Identities, key: str, **fields: object) -> Claimed:
    order = Order(key=key, tenant="analytics", **({"size_bytes": 64 * GiB} | fields))  # type: ignore[arg-type]
    return await claim(db, order, actor=ACTOR, identities=identities, tenants_auto_create=True)


async def test_a_claim_reserves_one_whole_logical_device(db: Database, identities: Identities) -> None:
    await a_fabric(db, identities)
    claimed = await ask(db, identities, "a", size_bytes=10 * GiB)
    (segment,) = claimed.allocation.segments
    assert claimed.created
    assert claimed.allocation.phase is Phase.RESERVED
    assert (segment.logical_device, segment.size_bytes) == (0, 64 * GiB)


async def test_sixty_four_clients_want_one_device_with_room_for_eight(db: Database, identities: Identities) -> None:
    await a_fabric(db, identities, lds=8, mlds=2)

    async def one(n: int) -> str:
        try:
            await ask(db, identities, f"key-{n}", device="mld-0", bind=False)
        except FabricError as error:
            return f"{error.code} with funnel" if error.facts["funnel"] else error.code
        return "granted"

    outcomes = Counter(await asyncio.gather(*(one(n) for n in range(64))))
    assert outcomes == {"granted": 8, "insufficient_capacity with funnel": 56}


async def test_a_hundred_equal_puts_are_one_allocation(db: Database, identities: Identities) -> None:
    await a_fabric(db, identities)
    answers = await asyncio.gather(*(ask(db, identities, "same") for _ in range(100)))
    assert sum(answer.created for answer in answers) == 1
    assert len({(a.allocation.id, a.allocation.segments[0].id) for a in answers}) == 1


async def test_a_key_with_another_request_says_what_differs(db: Database, identities: Identities) -> None:
    await a_fabric(db, identities)
    await ask(db, identities, "same")
    with pytest.raises(FabricError) as refused:
        await ask(db, identities, "same", size_bytes=GiB)
    assert refused.value.code is Code.KEY_REUSE_MISMATCH
    assert refused.value.facts["differs"] == [{"field": "size_bytes", "have": 64 * GiB, "got": GiB}]


async def test_a_release_that_overtakes_its_request_wins(db: Database, identities: Identities) -> None:
    await a_fabric(db, identities)
    gone = await release(db, key="late", tombstone_scope="any", actor=ACTOR, identities=identities)
    assert gone is None
    with pytest.raises(FabricError) as refused:
        await ask(db, identities, "late")
    assert refused.value.code is Code.RELEASED


async def test_a_named_host_is_bound_in_the_same_step(db: Database, identities: Identities) -> None:
    await a_fabric(db, identities, dcds=1)
    for key, pool in (("ld", "mlds"), ("dc", "dcds")):
        claimed = await ask(db, identities, key, host="node-1", pool=pool)
        (segment,) = claimed.allocation.segments
        assert claimed.allocation.phase is Phase.BINDING
        assert segment.binding is not None
        assert (segment.binding.switch, segment.binding.vcs) == ("sw-0", 1)
        assert claimed.allocation.operation is not None
