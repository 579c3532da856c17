"""The driver of the simulated rack: the rack's own wire, spoken as `FabricDriver` wants it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from fabric_manager.southbound.driver import (
    MULTI_LOGICAL_NONE,
    BackgroundStatus,
    BusyError,
    DeviceFacts,
    FabricDriver,
    Frame,
    FrameSink,
    Inventory,
    LdFacts,
    OutcomeUnknownError,
    RefusedError,
    SwitchFacts,
    TaggedExtent,
    UnbindOption,
    UnreachableError,
    VcsFacts,
)
from fabric_manager.southbound.simulator import decode
from fabric_manager.southbound.simulator.codes import CHANGING, COMMAND_NAMES, Code, Opcode
from fabric_manager.southbound.simulator.wire import NoAnswerError, NotConnectedError, Session

EVERYTHING = "*"
Now = Callable[[], datetime]


async def connect(endpoint: str, *, frames: FrameSink, timeout_s: float = 2.0, now: Now) -> FabricDriver:
    """`endpoint` is "simulator:<state directory>". Connects when first used: a rack that is down is no error."""
    scheme, _, path = endpoint.partition(":")
    if scheme != "simulator" or not path:
        raise ValueError(f"endpoint {endpoint!r}: write simulator:<state directory>")
    return SimulatorDriver(endpoint, state_dir=Path(path), frames=frames, timeout_s=timeout_s, now=now)


class SimulatorDriver:
    """One connection, opened when needed and again after it broke. Each exchange becomes one frame."""

    def __init__(self, endpoint: str, *, state_dir: Path, frames: FrameSink, timeout_s: float, now: Now) -> None:
        self.endpoint = endpoint
        self._session = Session(state_dir, timeout_s=timeout_s)
        self._frames = frames
        self._now = now

    @property
    def stray_answers(self) -> int:
        """Answers that came too late or twice, and were dropped."""
        return self._session.stray_answers

    async def close(self) -> None:
        await self._session.close()

    async def inventory(self) -> Inventory:
        names = await self._ask(Opcode.IDENTIFY, EVERYTHING)
        switches = [await self._switch(name) for name in names["switches"]]
        devices = [await self._device(serial) for serial in names["devices"]]
        return Inventory(switches=tuple(switches), devices=tuple(devices))

    async def read_vcs(self, switch: str, *, vcs: int) -> VcsFacts:
        answer = await self._ask(Opcode.VCS_INFO, switch, vcs=[vcs])
        return decode.vcs(answer["vcs"][0])

    async def bind(self, switch: str, *, vcs: int, vppb: int, port: int, ld_id: int | None) -> None:
        wire_ld = MULTI_LOGICAL_NONE if ld_id is None else ld_id
        await self._ask(Opcode.BIND, switch, vcs=vcs, vppb=vppb, port=port, ld_id=wire_ld)

    async def unbind(self, switch: str, *, vcs: int, vppb: int, option: UnbindOption) -> None:
        await self._ask(Opcode.UNBIND, switch, vcs=vcs, vppb=vppb, option=option)

    async def switch_background(self, switch: str) -> BackgroundStatus:
        return decode.background(await self._ask(Opcode.BACKGROUND_STATUS, switch))

    async def device_background(self, serial: str) -> BackgroundStatus:
        return decode.background(await self._ask(Opcode.BACKGROUND_STATUS, serial))

    async def abort_background(self, serial: str) -> None:
        await self._ask(Opcode.ABORT_BACKGROUND, serial)

    async def read_lds(self, serial: str) -> tuple[LdFacts, ...]:
        allocations = await self._ask(Opcode.GET_LD_ALLOCATIONS, serial, start=0)
        count = allocations["ld_count"]
        shares = await self._ask(Opcode.GET_QOS_SHARE, serial, start=0, count=count)
        limits = await self._ask(Opcode.GET_QOS_LIMIT, serial, start=0, count=count)
        return decode.lds(allocations, shares=shares["fractions"], limits=limits["fractions"])

    async def set_ld_sizes(self, serial: str, *, sizes_bytes: Sequence[int]) -> tuple[LdFacts, ...]:
        """Sizes must be whole granules: RefusedError otherwise, since rounding would carve what nobody asked for."""
        before = await self._ask(Opcode.GET_LD_ALLOCATIONS, serial, start=0)
        multipliers = decode.granules(sizes_bytes, granularity=before["granularity"])
        await self._ask(Opcode.SET_LD_ALLOCATIONS, serial, start=0, multipliers=multipliers)
        return await self.read_lds(serial)

    async def set_qos(self, serial: str, *, ld_id: int, share_n: int, limit_n: int) -> LdFacts:
        await self._ask(Opcode.SET_QOS_LIMIT, serial, start=ld_id, fractions=[limit_n])
        await self._ask(Opcode.SET_QOS_SHARE, serial, start=ld_id, fractions=[share_n])
        return await self._ld(serial, ld_id)

    async def sanitize_ld(self, serial: str, *, ld_id: int) -> None:
        await self._ask(Opcode.SANITIZE, serial, ld_id=ld_id)

    async def read_extents(self, serial: str, *, host_ld: int) -> tuple[TaggedExtent, ...]:
        answer = await self._ask(Opcode.GET_EXTENTS, serial, host=host_ld)
        return tuple(map(decode.extent, answer["extents"]))

    async def offer_extents(
        self, serial: str, *, host_ld: int, tag: UUID, region: int, spans: Sequence[tuple[int, int]]
    ) -> None:
        extents = [list(span) for span in spans]
        await self._ask(Opcode.ADD_CAPACITY, serial, host=host_ld, tag=str(tag), region=region, extents=extents)

    async def release_extents(self, serial: str, *, host_ld: int, tag: UUID, sanitize: bool, forced: bool) -> None:
        await self._ask(Opcode.RELEASE_CAPACITY, serial, host=host_ld, tag=str(tag), sanitize=sanitize, forced=forced)

    async def _switch(self, name: str) -> SwitchFacts:
        identity = await self._ask(Opcode.IDENTIFY_SWITCH, name)
        ports = await self._ask(Opcode.PORT_STATES, name)
        every_vcs = await self._ask(Opcode.VCS_INFO, name, vcs=[])
        return decode.switch(identity, ports=ports["ports"], every_vcs=every_vcs["vcs"])

    async def _device(self, serial: str) -> DeviceFacts:
        identity = await self._ask(Opcode.IDENTIFY, serial)
        if identity["kind"] == "mld":
            await self._ask(Opcode.LD_INFO, serial)
            return decode.device(identity, lds=await self.read_lds(serial))
        if identity["kind"] == "dcd":
            info = await self._ask(Opcode.DCD_INFO, serial)
            # Every host sees the same regions; the first one speaks for all.
            configuration = await self._ask(Opcode.DC_REGIONS, serial, host=0)
            return decode.device(identity, lds_max=info["hosts"], regions=configuration["regions"])
        return decode.device(identity)

    async def _ld(self, serial: str, ld_id: int) -> LdFacts:
        allocations = await self._ask(Opcode.GET_LD_ALLOCATIONS, serial, start=ld_id)
        shares = await self._ask(Opcode.GET_QOS_SHARE, serial, start=ld_id, count=1)
        limits = await self._ask(Opcode.GET_QOS_LIMIT, serial, start=ld_id, count=1)
        return decode.lds(allocations, shares=shares["fractions"], limits=limits["fractions"])[0]

    async def _ask(self, opcode: Opcode, component: str, **args: Any) -> dict[str, Any]:
        """One exchange, one frame; the answer's payload, or the DriverError that tells the caller what to do next."""
        try:
            await self._session.connect()
        except NotConnectedError as error:
            raise UnreachableError(f"{self.endpoint}: {error}") from error
        request = {"channel": "hardware", "op": f"{opcode:04x}", "component": component, "args": args}
        sent_at, answer, failure = self._now(), None, None
        try:
            answer = await self._session.ask(request)
        except (NotConnectedError, NoAnswerError) as error:
            failure = error
        finally:  # a cancelled exchange was sent too, and the timeline must not lose it
            if not isinstance(failure, NotConnectedError):
                self._frames(self._frame(opcode, component, args, answer=answer, sent_at=sent_at))
        if answer is None:
            raise _no_answer(opcode, component, failure) from failure
        return _judged(opcode, component, answer)

    def _frame(
        self, opcode: Opcode, component: str, args: dict[str, Any], *, answer: dict[str, Any] | None, sent_at: datetime
    ) -> Frame:
        return Frame(
            endpoint=self.endpoint,
            component=component,
            opcode=int(opcode),
            command=COMMAND_NAMES[opcode],
            request=args,
            response=None if answer is None else answer["result"],
            return_code=None if answer is None else answer["code"],
            sent_at=sent_at,
            answered_at=None if answer is None else self._now(),
            request_raw=orjson.dumps(args),
            response_raw=b"" if answer is None else orjson.dumps(answer["result"]),
        )


def _no_answer(opcode: Opcode, component: str, failure: Exception | None) -> Exception:
    message = f"{opcode:04x}h to {component}: {failure}"
    unsent = isinstance(failure, NotConnectedError)
    return UnreachableError(message) if unsent or opcode not in CHANGING else OutcomeUnknownError(message)


def _judged(opcode: Opcode, component: str, answer: dict[str, Any]) -> dict[str, Any]:
    code = answer["code"]
    if code in (Code.SUCCESS, Code.BACKGROUND_STARTED):
        return dict(answer["result"])
    message = f"{opcode:04x}h to {component}: return code {code:04x}h {answer['detail']}".rstrip()
    if code in (Code.BUSY, Code.RETRY_REQUIRED):
        raise BusyError(message)
    if code == Code.INTERNAL_ERROR and opcode in CHANGING:
        raise OutcomeUnknownError(message)  # a set of several that worked in part answers this too
    raise RefusedError(message, code=code)
