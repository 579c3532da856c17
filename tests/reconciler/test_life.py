"""One allocation's life on the simulated rack, below HTTP."""

import pytest

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import GiB
from tests.systems import System

POOLS = pytest.mark.parametrize("pool", ["high-performance", "standard"])


@POOLS
async def test_memory_is_bound_used_given_back_erased_and_free_again(system: System, pool: str) -> None:
    await system.claim("life", pool=pool, host="node-3")
    bound = await system.reaches("life", Phase.BOUND)
    await system.report(bound, "online")
    assert (await system.reaches("life", Phase.ONLINE)).operation is None
    await system.release("life")
    await system.reaches("life", Phase.RELEASE_BLOCKED)
    await system.report(bound, "offline")
    await system.reaches("life", Phase.RELEASED)


@POOLS
async def test_unbinding_keeps_the_reservation_clean(system: System, pool: str) -> None:
    await system.claim("kept", pool=pool, host="node-1")
    await system.reaches("kept", Phase.BOUND)
    await system.unbind("kept")
    kept = await system.reaches("kept", Phase.RESERVED)
    assert kept.host is None
    await system.bind("kept", "node-2")
    assert (await system.reaches("kept", Phase.BOUND)).host == "node-2"


async def test_a_node_may_not_go_online_once_release_is_wanted(system: System) -> None:
    await system.claim("late", host="node-3", size_bytes=GiB)
    bound = await system.reaches("late", Phase.BOUND)
    await system.release("late")
    with pytest.raises(FabricError) as refused:
        await system.report(bound, "online")
    assert refused.value.code in (Code.RELEASING, Code.RELEASED)
