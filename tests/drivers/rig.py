"""A driver with the hardware it drives, and hands on that hardware."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

from fabric_manager.southbound.driver import (
    BackgroundStatus,
    ExtentState,
    FabricDriver,
    Frame,
    TaggedExtent,
    UnbindOption,
    VppbFacts,
)
from fabric_manager.southbound.registry import open_driver
from fabric_manager.southbound.simulator.control import RackControl
from fabric_manager.southbound.simulator.supervise import RackProcess, start_or_adopt

RACK_FILE = Path(__file__).with_name("rack.yaml")
DRIVER_TIMEOUT_S = 0.4
DEADLINE_S = 10.0
SWITCH, MLD, MLD_RESIZE, SLD, DCD = "sw-0", "MLD-0", "MLD-1", "SLD-0", "DCD-0"
MLD_PORT, MLD_RESIZE_PORT, SLD_PORT, DCD_PORT = 8, 9, 10, 12
T = TypeVar("T")


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Read until it holds; fails at the deadline with what was read last."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds(seen := await read()):
        assert time.monotonic() < deadline, f"still {seen}"
        await asyncio.sleep(0.002)
    return seen


@dataclass(slots=True, kw_only=True)
class Rig:
    driver: FabricDriver
    control: RackControl
    process: RackProcess
    frames: list[Frame]

    async def switch_idle(self) -> BackgroundStatus:
        return await until(lambda: self.driver.switch_background(SWITCH), lambda status: not status.in_progress)

    async def device_idle(self, serial: str) -> BackgroundStatus:
        return await until(lambda: self.driver.device_background(serial), lambda status: not status.in_progress)

    async def vppb(self, vcs: int, vppb: int) -> VppbFacts:
        return (await self.driver.read_vcs(SWITCH, vcs=vcs)).vppbs[vppb]

    async def bound(self, *, vcs: int = 0, vppb: int = 0, port: int = MLD_PORT, ld_id: int | None = 0) -> None:
        await self.driver.bind(SWITCH, vcs=vcs, vppb=vppb, port=port, ld_id=ld_id)
        assert (await self.switch_idle()).return_code == 0

    async def unbound(self, *, vcs: int = 0, vppb: int = 0) -> None:
        await self.driver.unbind(SWITCH, vcs=vcs, vppb=vppb, option=UnbindOption.MANAGED)
        assert (await self.switch_idle()).return_code == 0

    async def attached(self, *host_lds: int) -> None:
        """Host n is on VCS n, and gets the DCD at its last vPPB."""
        for host_ld in host_lds:
            await self.bound(vcs=host_ld, vppb=3, port=DCD_PORT, ld_id=host_ld)

    async def extents(self, host_ld: int = 0) -> tuple[TaggedExtent, ...]:
        return await self.driver.read_extents(DCD, host_ld=host_ld)

    async def offered(self, *spans: tuple[int, int], host_ld: int = 0, region: int = 0) -> UUID:
        tag = uuid4()
        await self.driver.offer_extents(DCD, host_ld=host_ld, tag=tag, region=region, spans=spans)
        return tag

    async def accepted(self, *spans: tuple[int, int], host_ld: int = 0, region: int = 0) -> UUID:
        tag = await self.offered(*spans, host_ld=host_ld, region=region)
        await self.in_state(ExtentState.ACCEPTED, tag, host_ld=host_ld)
        return tag

    async def in_state(self, state: ExtentState, tag: UUID, *, host_ld: int = 0) -> None:
        await until(lambda: self.extents(host_ld), lambda seen: {e.state for e in seen if e.tag == tag} == {state})

    async def gone(self, tag: UUID, *, host_ld: int = 0) -> None:
        await until(lambda: self.extents(host_ld), lambda seen: all(e.tag != tag for e in seen))

    async def killed(self) -> None:
        """Kill the hardware as a crash does, and start it from what it kept."""
        await self.process.kill()
        self.process = await start_or_adopt(state_dir=self.process.state_dir, rack_file=RACK_FILE)

    async def executed(self, opcode: int) -> int:
        """How often the hardware ran this command."""
        return sum(int(e["op"], 16) == opcode and e["code"] is not None for e in await self.control.journal())


@contextlib.asynccontextmanager
async def open_rig(name: str, process: RackProcess) -> AsyncIterator[Rig]:
    """`name` is the driver's; each driver brings its own way to start its hardware here."""
    assert name == "simulator"
    frames: list[Frame] = []
    driver = await open_driver(
        name, process.endpoint, frames=frames.append, timeout_s=DRIVER_TIMEOUT_S, now=lambda: datetime.now(UTC)
    )
    control = RackControl(process.state_dir)
    await control.reset()
    try:
        yield Rig(driver=driver, control=control, process=process, frames=frames)
    finally:
        await driver.close()
        await control.close()
