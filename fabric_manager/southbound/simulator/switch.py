"""One simulated switch: ports, a virtual switch for each host port, and the binding of vPPBs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from fabric_manager.southbound.driver import MULTI_LOGICAL_NONE, UnbindOption, VppbState
from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.background import BackgroundSlot
from fabric_manager.southbound.simulator.codes import Code, CommandError, Opcode
from fabric_manager.southbound.simulator.device import Device
from fabric_manager.southbound.simulator.faults import FaultPlan, Knob
from fabric_manager.southbound.simulator.hosts import Host
from fabric_manager.southbound.simulator.topology import LinkPlan, SwitchPlan

BIND_S = (0.020, 0.060)  # how long a bind or unbind takes, at least and at most
Place = tuple[int, int]  # VCS and vPPB


@dataclass(frozen=True, slots=True)
class Target:
    """What a vPPB is bound to: an LD behind a port, or with `ld_id` None the whole port."""

    port: int
    ld_id: int | None


class Switch:
    def __init__(
        self,
        plan: SwitchPlan,
        *,
        agenda: Agenda,
        faults: FaultPlan,
        devices: Mapping[int, Device],
        hosts: Mapping[int, Host],
        random: Random,
    ) -> None:
        """`devices` and `hosts` are what hangs on which port; `random` decides how long binding takes."""
        self.plan = plan
        self.boot_count = 0
        self.bindings: dict[Place, Target] = {}
        self.slot = BackgroundSlot(owner=plan.name, agenda=agenda)
        self._busy: Place | None = None
        self._devices = devices
        self._hosts = hosts
        self._knobs: Callable[[], frozenset[Knob]] = lambda: faults.knobs
        self._random = random

    @property
    def words(self) -> frozenset[str]:
        return frozenset((self.plan.name, self.plan.serial))

    def identify(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "name": plan.name,
            "serial": plan.serial,
            "ports": len(plan.upstream) + len(self._devices),
            "vcs": len(plan.upstream),
            "vppbs": len(plan.upstream) * plan.vppbs,
            "bound_vppbs": len(self.bindings),
            "hdm_decoders": plan.hdm_decoders,
            "boot_count": self.boot_count,
        }

    def port_states(self) -> dict[str, Any]:
        upstream = [_port(n, role="upstream", link=self.plan.link) for n in self.plan.upstream]
        downstream = [
            _port(n, role="downstream", link=device.plan.link, serial=device.serial)
            for n, device in self._devices.items()
        ]
        return {"ports": sorted(upstream + downstream, key=lambda port: port["number"])}

    def vcs_info(self, numbers: list[int]) -> dict[str, Any]:
        """All of them when `numbers` is empty."""
        return {"vcs": [self._vcs(n) for n in numbers or range(len(self.plan.upstream))]}

    def bind(self, *, vcs: int, vppb: int, port: int, ld_id: int, now_s: float) -> None:
        target = Target(port, None if ld_id == MULTI_LOGICAL_NONE else ld_id)
        place = (vcs, vppb)
        self.slot.refuse_if_busy()
        if Knob.LATE_BIND_ERRORS not in self._knobs():
            self._check_bind(place, target)

        def finish(_: float) -> Code:
            self._check_bind(place, target)  # much may have changed since it was accepted
            self.bindings[place] = target
            return Code.SUCCESS

        self._start(Opcode.BIND, place, target, now_s=now_s, finish=finish)

    def unbind(self, *, vcs: int, vppb: int, option: UnbindOption, now_s: float) -> None:
        place = (vcs, vppb)
        self.slot.refuse_if_busy()
        if Knob.LATE_BIND_ERRORS not in self._knobs():
            self._check_bound(place)

        def finish(_: float) -> Code:
            self._check_bound(place)
            if option is not UnbindOption.SURPRISE and self._online(place):
                return Code.RETRY_REQUIRED  # the host does not let go of memory that it uses
            self.cut(place)
            return Code.SUCCESS

        self._start(Opcode.UNBIND, place, self.bindings.get(place), now_s=now_s, finish=finish)

    def connect(self, place: Place, target: Target) -> None:
        """Bind at once, with no questions asked: somebody works on the switch past us."""
        self._check_place(place)
        self._device(target.port)
        self.bindings[place] = target

    def cut(self, place: Place) -> None:
        """Unbind at once; a host that used the memory gets a machine check."""
        self._check_bound(place)
        host, words = self._host(place), self._online(place)
        del self.bindings[place]
        if host and words:
            host.lose(words)

    def places_of(self, port: int, ld_id: int) -> list[Place]:
        """Where LD `ld_id` of the device on `port` is bound; more than one place only on a careless switch."""
        return [
            place for place, target in self.bindings.items() if target.port == port and (target.ld_id or 0) == ld_id
        ]

    def host_of(self, port: int, ld_id: int) -> Host | None:
        places = self.places_of(port, ld_id)
        return self._host(places[0]) if places else None

    def reaches(self, host: Host, port: int, ld_id: int) -> bool:
        return any(self._host(place) is host for place in self.places_of(port, ld_id))

    def restart(self, *, volatile: bool, now_s: float) -> None:  # noqa: ARG002 - as a device restarts
        self.boot_count += 1
        self.slot.forget()
        self._busy = None
        for place in list(self.bindings) if volatile else []:
            self.cut(place)

    def snapshot(self) -> dict[str, Any]:
        bindings = [[*place, target.port, target.ld_id] for place, target in self.bindings.items()]
        return {"boot_count": self.boot_count, "bindings": bindings}

    def drain_changes(self) -> Iterator[tuple[str, Any]]:
        yield "", self.snapshot()

    def restore(self, kept: dict[str, Any]) -> None:
        body = kept[""]
        self.boot_count = body["boot_count"]
        self.bindings = {(vcs, vppb): Target(port, ld_id) for vcs, vppb, port, ld_id in body["bindings"]}

    def _start(
        self, opcode: Opcode, place: Place, target: Target | None, *, now_s: float, finish: Callable[[float], Code]
    ) -> None:
        def end(at_s: float) -> Code:
            self._busy = None
            try:
                return finish(at_s)
            except CommandError as error:
                return error.code

        self._busy = place
        ld_id = target.ld_id if target else None
        self.slot.start(opcode, ld_id=ld_id, duration_s=self._random.uniform(*BIND_S), now_s=now_s, finish=end)

    def _check_bind(self, place: Place, target: Target) -> None:
        self._check_place(place)
        knobs = self._knobs()
        if place in self.bindings and Knob.NO_VPPB_CHECK not in knobs:
            raise CommandError(Code.INVALID_INPUT, f"vPPB {place[1]} of VCS {place[0]} is not free")
        self._device(target.port).check_bindable(target.ld_id)
        taken = self.places_of(target.port, target.ld_id or 0)
        if taken and Knob.NO_BIND_CONFLICT_CHECK not in knobs:
            raise CommandError(Code.INVALID_INPUT, f"that LD is bound at VCS {taken[0][0]}, vPPB {taken[0][1]}")

    def _check_place(self, place: Place) -> None:
        vcs, vppb = place
        if not 0 <= vcs < len(self.plan.upstream) or not 0 <= vppb < self.plan.vppbs:
            raise CommandError(Code.INVALID_INPUT, f"{self.plan.name} has no vPPB {vppb} in VCS {vcs}")

    def _check_bound(self, place: Place) -> None:
        self._check_place(place)
        if place not in self.bindings:
            raise CommandError(Code.INVALID_INPUT, f"vPPB {place[1]} of VCS {place[0]} is not bound")

    def _device(self, port: int) -> Device:
        if port not in self._devices:
            raise CommandError(Code.INVALID_INPUT, f"no device on port {port} of {self.plan.name}")
        return self._devices[port]

    def _host(self, place: Place) -> Host | None:
        return self._hosts.get(self.plan.upstream[place[0]])

    def _online(self, place: Place) -> set[str]:
        host, target = self._host(place), self.bindings[place]
        if host is None:
            return set()
        return host.online & self._device(target.port).online_words(target.ld_id or 0)

    def _vcs(self, number: int) -> dict[str, Any]:
        self._check_place((number, 0))
        vppbs = [self._vppb((number, vppb)) for vppb in range(self.plan.vppbs)]
        return {"number": number, "upstream_port": self.plan.upstream[number], "vppbs": vppbs}

    def _vppb(self, place: Place) -> dict[str, Any]:
        target = self.bindings.get(place)
        if place == self._busy:
            return {"number": place[1], "status": VppbState.BUSY}
        if target is None:
            return {"number": place[1], "status": VppbState.FREE}
        status = VppbState.BOUND_PORT if target.ld_id is None else VppbState.BOUND_LD
        return {"number": place[1], "status": status, "port": target.port, "ld_id": target.ld_id}


def _port(number: int, *, role: str, link: LinkPlan, serial: str | None = None) -> dict[str, Any]:
    return {
        "number": number,
        "role": role,
        "device_serial": serial,
        "link_width": link.width,
        "link_width_max": link.width,
        "link_speed_gt": link.speed_gt,
        "link_speed_gt_max": link.speed_gt,
    }
