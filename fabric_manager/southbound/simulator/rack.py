"""The whole rack as a state machine: one call executes one command at one time. No sockets, no waiting."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.codes import Code, CommandError
from fabric_manager.southbound.simulator.dcd import Dcd
from fabric_manager.southbound.simulator.device import Device
from fabric_manager.southbound.simulator.faults import FaultPlan
from fabric_manager.southbound.simulator.hosts import Host
from fabric_manager.southbound.simulator.memory import Run
from fabric_manager.southbound.simulator.mld import Mld
from fabric_manager.southbound.simulator.switch import Switch
from fabric_manager.southbound.simulator.topology import DevicePlan, RackPlan

HOST_TRANSFER_BYTES_MAX = 1 << 20


class Rack:
    """Owns the parts and wires them up. `advance` must be called before anything is asked of it."""

    def __init__(self, plan: RackPlan, *, seed: int) -> None:
        self.agenda = Agenda()
        self.faults = FaultPlan()
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.hosts = {host.name: Host(host) for host in plan.hosts}
        self.devices = {device.name: self._device(device) for device in plan.devices}
        self.switches = {
            switch.name: Switch(
                switch,
                agenda=self.agenda,
                faults=self.faults,
                devices={d.plan.port: d for d in self.devices.values() if d.plan.switch == switch.name},
                hosts={p: h for h in self.hosts.values() for s, p in h.ports if s == switch.name},
                random=self.random,
            )
            for switch in plan.switches
        }
        self._touched: set[str] = set()
        self._index: dict[str, Switch | Device] = {}  # by name and serial

    def advance(self, now_s: float) -> None:
        self._touched |= self.agenda.run_due(now_s)

    def component(self, word: str) -> Switch | Device:
        """By name or serial. CommandError when there is none."""
        if (part := self._find(word)) is not None:
            return part
        raise CommandError(Code.INVALID_INPUT, f"the rack has no component {word!r}")

    def words_of(self, word: str) -> frozenset[str]:
        """Every word for the same component, for rules that name it by another one."""
        part = self._find(word)
        return frozenset((word,)) if part is None else part.words

    def switch(self, word: str) -> Switch:
        if isinstance(part := self.component(word), Switch):
            return part
        raise CommandError(Code.UNSUPPORTED, f"{word} is not a switch")

    def device(self, word: str) -> Device:
        if isinstance(part := self.component(word), Device):
            return part
        raise CommandError(Code.UNSUPPORTED, f"{word} is not a device")

    def mld(self, word: str) -> Mld:
        if isinstance(part := self.component(word), Mld):
            return part
        raise CommandError(Code.UNSUPPORTED, f"{word} has no LDs")

    def dcd(self, word: str) -> Dcd:
        if isinstance(part := self.component(word), Dcd):
            return part
        raise CommandError(Code.UNSUPPORTED, f"{word} has no dynamic capacity")

    def host(self, name: str) -> Host:
        if name in self.hosts:
            return self.hosts[name]
        raise CommandError(Code.INVALID_INPUT, f"the rack has no host {name!r}")

    def host_read(self, name: str, *, serial: str, ld_id: int, address: int, size_bytes: int) -> bytes:
        """As that host sees it: CommandError unless it is bound to it and, on a DCD, has accepted it."""
        runs = self._reach(name, serial=serial, ld_id=ld_id, address=address, size_bytes=size_bytes)
        return b"".join(map(self.device(serial).store.read, runs))

    def host_write(self, name: str, *, serial: str, ld_id: int, address: int, data: bytes) -> None:
        store = self.device(serial).store
        for start, size in self._reach(name, serial=serial, ld_id=ld_id, address=address, size_bytes=len(data)):
            store.write(start, data[:size])
            data = data[size:]

    def interfaces_of(self, host: Host) -> Iterator[tuple[Dcd, int]]:
        """The DCDs bound to this host, each with the host interface it is bound through."""
        for device in self.devices.values():
            if isinstance(device, Dcd):
                for ld_id in range(device.plan.lds_max):
                    if device.host_of(ld_id) is host:
                        yield device, ld_id

    def restart(self, word: str, *, volatile: bool, now_s: float) -> None:
        """One component, or with "*" all of them."""
        parts = self._parts().values() if word == "*" else [self.component(word)]
        for part in parts:
            part.restart(volatile=volatile, now_s=now_s)
            self.touch(part.plan.name)

    def touch(self, name: str) -> None:
        """The state of the component or host `name` may have changed and is to be kept."""
        self._touched.add(name)

    def drain_changes(self) -> Iterator[tuple[str, Any]]:
        """Kept state of what was touched since the last call, and the bytes written; None deletes a key."""
        # A command to one component may change a host too: machine checks. Hosts are few and small.
        names = sorted(self._touched | set(self.hosts)) if self._touched else []
        self._touched = set()
        parts: dict[str, Switch | Device | Host] = {**self._parts(), **self.hosts}
        for name in names:
            for key, value in parts[name].drain_changes():
                yield name + key, value
        for device in self.devices.values():
            for n, page in device.store.drain_touched():
                yield f"page:{device.plan.name}:{n}", None if page is None else page.hex()

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take over what an earlier process of this rack kept; components it did not know start fresh."""
        grouped: dict[str, dict[str, Any]] = {}
        for key, value in kept.items():
            name, colon, rest = key.partition(":")
            grouped.setdefault(name, {})[colon + rest] = value
        for name, host in self.hosts.items():
            if name in grouped:
                host.restore(grouped[name][""])
        for name, part in self._parts().items():
            if name in grouped:
                part.restore(grouped[name])
        for key, page in grouped.get("page", {}).items():
            _, name, number = key.split(":")
            if name in self.devices:
                self.devices[name].store.load(int(number), bytes.fromhex(page))

    def _find(self, word: str) -> Switch | Device | None:
        part = self._index.get(word)
        if part is None or word not in part.words:  # never there, or a device was replaced
            self._index = {known: part for part in self._parts().values() for known in part.words}
        return self._index.get(word)

    def _parts(self) -> dict[str, Switch | Device]:
        return {**self.switches, **self.devices}

    def _device(self, plan: DevicePlan) -> Device:
        kind = Dcd if plan.kind == "dcd" else Mld
        return kind(
            plan,
            agenda=self.agenda,
            faults=self.faults,
            host_of=lambda ld_id: self.switches[plan.switch].host_of(plan.port, ld_id),
        )

    def _reach(self, name: str, *, serial: str, ld_id: int, address: int, size_bytes: int) -> list[Run]:
        if not 0 < size_bytes <= HOST_TRANSFER_BYTES_MAX:
            raise CommandError(Code.INVALID_INPUT, f"between 1 and {HOST_TRANSFER_BYTES_MAX} bytes at a time")
        device = self.device(serial)
        if not self.switches[device.plan.switch].reaches(self.host(name), device.plan.port, ld_id):
            raise CommandError(Code.INVALID_INPUT, f"LD {ld_id} of {serial} is not bound to {name}")
        return device.locate(ld_id, address=address, size_bytes=size_bytes)
