"""The far side of the rack that a service started, for tests that are not asynchronous."""

import asyncio
from pathlib import Path
from typing import Any

from fabric_manager.southbound.simulator.control import RackControl
from tests.services import Service


class RackSide:
    """Each call opens and closes its own connection: a rack may have been restarted in between."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            async def ask() -> Any:
                control = RackControl(self._state_dir)
                try:
                    return await getattr(control, name)(*args, **options)
                finally:
                    await control.close()

            return asyncio.run(ask())

        return call


def rack(service: Service) -> RackSide:
    return RackSide(service.data_dir / "rack")
