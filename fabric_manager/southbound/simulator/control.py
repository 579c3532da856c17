"""The client of a rack's control channel: for tests, the demo, and `PUT /simulator/faults`."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from fabric_manager.southbound.simulator.codes import Code
from fabric_manager.southbound.simulator.faults import FaultKind, FaultRule, Knob
from fabric_manager.southbound.simulator.wire import NoAnswerError, NotConnectedError, Session

TIMEOUT_S = 5.0


class RackControlError(Exception):
    """The rack refused an operation, or there is no rack to ask; the message says which."""


class RackControl:
    """Connects when first used, and again after the rack restarted. Nothing here goes through the fault rules."""

    def __init__(self, state_dir: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._session = Session(state_dir, timeout_s=timeout_s)

    async def close(self) -> None:
        await self._session.close()

    async def ping(self) -> dict[str, Any]:
        """{pid, boot} of the process that answers."""
        return await self._ask("ping")

    async def state(self) -> dict[str, Any]:
        """Bindings, LDs, extents and hosts as they really are."""
        return await self._ask("state")

    async def journal(self, *, since: int = 0) -> list[dict[str, Any]]:
        """The hardware commands this process of the rack was sent after entry `since`; code None: not executed."""
        return list((await self._ask("journal", since=since))["entries"])

    async def reset(self) -> None:
        """As the rack file describes it: bindings, bytes, faults, settings and journal are gone."""
        await self._ask("reset")

    # Faults.

    async def faults(self) -> dict[str, Any]:
        """{rules, knobs}; rules that have used up their count are gone."""
        return await self._ask("get_faults")

    async def put_faults(self, *, rules: Iterable[dict[str, Any]] = (), knobs: Iterable[str] = ()) -> dict[str, Any]:
        """Replace all rules and knobs; with no arguments: no faults any more."""
        return await self._ask("put_faults", rules=list(rules), knobs=list(knobs))

    async def add_fault(
        self,
        kind: FaultKind,
        *,
        opcode: int | None = None,
        component: str | None = None,
        count: int | None = 1,
        seconds: float = 0.0,
        code: int | None = None,
        volatile: bool = False,
    ) -> None:
        rule = FaultRule(
            kind=kind,
            opcode=opcode,
            component=component,
            count=count,
            seconds=seconds,
            code=code,
            volatile=volatile,
        )
        await self._ask("add_fault", **asdict(rule))

    async def set_knobs(self, knobs: Iterable[Knob]) -> None:
        await self._ask("set_knobs", knobs=list(knobs))

    # Time.

    async def set_speed(self, speed: float) -> None:
        """1 is real time, 1000 a thousand times as fast, 0 stands still until `step`."""
        await self._ask("set_clock", speed=speed)

    async def step(self, seconds: float) -> None:
        await self._ask("step_clock", seconds=seconds)

    # Hosts.

    async def host(self, host: str) -> dict[str, Any]:
        return await self._ask("get_host", host=host)

    async def set_host(
        self,
        host: str,
        *,
        on_offer: str | None = None,
        on_release: str | None = None,
        answer_s: float | None = None,
    ) -> None:
        """on_offer: accept, refuse, partial, silent; on_release: give_back, hold. Applies to what is pending too."""
        given = {"on_offer": on_offer, "on_release": on_release, "answer_s": answer_s}
        await self._ask("set_host", host=host, **{word: value for word, value in given.items() if value is not None})

    async def set_online(self, host: str, memory: str | UUID, *, online: bool) -> None:
        """`memory` is the tag of an extent, or "serial/ld"; while online, the host gives it back to nobody."""
        await self._ask("set_online", host=host, memory=str(memory), online=online)

    async def give_back(self, host: str, tag: UUID) -> None:
        """Now, whatever the host's behavior; the rack must have asked for it."""
        await self._ask("give_back", host=host, tag=str(tag))

    async def read(self, host: str, device: str, *, ld_id: int, address: int, size_bytes: int) -> bytes:
        """As `host` sees it: address within the LD, or in the host's own space of a DCD."""
        answer = await self._ask(
            "host_read", host=host, device=device, ld_id=ld_id, address=address, size_bytes=size_bytes
        )
        return bytes.fromhex(answer["data"])

    async def write(self, host: str, device: str, *, ld_id: int, address: int, data: bytes) -> None:
        await self._ask("host_write", host=host, device=device, ld_id=ld_id, address=address, data=data.hex())

    # Hands on the rack.

    async def bind(self, switch: str, *, vcs: int, vppb: int, port: int, ld_id: int | None) -> None:
        """At once and unchecked, past the manager: makes drift."""
        await self._ask("bind", switch=switch, vcs=vcs, vppb=vppb, port=port, ld_id=ld_id)

    async def unbind(self, switch: str, *, vcs: int, vppb: int) -> None:
        await self._ask("unbind", switch=switch, vcs=vcs, vppb=vppb)

    async def restart(self, component: str = "*", *, volatile: bool = False) -> None:
        """Power-cycle one component or all; volatile ones forget bindings and extents, never bytes."""
        await self._ask("restart", component=component, volatile=volatile)

    async def replace_device(self, device: str, *, serial: str) -> None:
        """Another device in the same slot: new serial, empty media."""
        await self._ask("replace_device", device=device, serial=serial)

    async def set_health(self, device: str, health: str) -> None:
        await self._ask("set_health", device=device, health=health)

    async def _ask(self, op: str, **args: Any) -> dict[str, Any]:
        try:
            answer = await self._session.ask({"channel": "control", "op": op, "args": args})
        except (NotConnectedError, NoAnswerError) as error:
            raise RackControlError(str(error)) from error
        if answer["code"] != Code.SUCCESS:
            raise RackControlError(f"{op}: {answer['detail']}")
        return dict(answer["result"])
