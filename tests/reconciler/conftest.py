from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from fabric_manager.store.database import Database
from tests.systems import System, a_system, eventually


@pytest.fixture
async def system(db: Database, identities: Callable[[], UUID], tmp_path: Path) -> AsyncIterator[System]:
    """Discovered and at work."""
    async with a_system(db, identities, directory=tmp_path) as ready, ready.reconciling():

        async def undiscovered() -> int:
            async with db.snapshot() as tx:
                found = await tx.execute(sa.text("SELECT count(*) FROM device WHERE health = 'unknown'"))
                return int(found.scalar_one())

        await eventually(undiscovered, lambda left: left == 0)
        yield ready
