from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fabric_manager.southbound.simulator.supervise import start_or_adopt
from tests.drivers.rig import RACK_FILE, Rig, open_rig


@pytest.fixture(scope="session")
async def rack_dir(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The rack that tests share; whichever process runs on it at the end is stopped."""
    state_dir = tmp_path_factory.mktemp("rack")
    yield state_dir
    process = await start_or_adopt(state_dir=state_dir, rack_file=RACK_FILE)
    await process.stop()


@pytest.fixture(params=["simulator"])
async def rig(request: pytest.FixtureRequest, rack_dir: Path) -> AsyncIterator[Rig]:
    """The rack is as its file says when a test begins: started again if the last one killed it."""
    process = await start_or_adopt(state_dir=rack_dir, rack_file=RACK_FILE)
    async with open_rig(request.param, process) as opened:
        yield opened
