"""A reconciler in a process of its own, so that it can be stopped dead: `python -m tests.reconciler.other_process`."""

import asyncio
import sys
from datetime import UTC, datetime

import uuid_utils.compat

from fabric_manager.reconciler.loop import Reconciler
from fabric_manager.reconciler.turns import Wake
from fabric_manager.southbound.driver import FabricDriver, FrameSink
from fabric_manager.southbound.registry import open_driver
from fabric_manager.store.database import Database
from fabric_manager.store.work import KnownFabric
from tests.systems import FAST


async def run(url: str, owner: str) -> None:
    async def connect(fabric: KnownFabric, frames: FrameSink) -> FabricDriver:
        return await open_driver(
            fabric.driver, fabric.endpoint, frames=frames, timeout_s=FAST.command_s, now=lambda: datetime.now(UTC)
        )

    reconciler = Reconciler(
        Database(url),
        owner=owner,
        open_driver=connect,
        identities=uuid_utils.compat.uuid7,
        wake=Wake(),
        pace=FAST,
    )
    await reconciler.run()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2]))
