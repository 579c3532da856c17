"""What every simulated memory device has, whatever its kind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.background import BackgroundSlot
from fabric_manager.southbound.simulator.codes import Code, CommandError
from fabric_manager.southbound.simulator.faults import FaultPlan
from fabric_manager.southbound.simulator.hosts import Host
from fabric_manager.southbound.simulator.memory import ByteStore, Run
from fabric_manager.southbound.simulator.topology import DevicePlan

HostOf = Callable[[int], Host | None]  # the host that an LD or host interface is bound to


class Device(ABC):
    """Holds the bytes; a subclass decides which of them a host reaches."""

    def __init__(self, plan: DevicePlan, *, agenda: Agenda, faults: FaultPlan, host_of: HostOf) -> None:
        self.plan = plan
        self.serial = plan.serial
        self.health = "ok"
        self.boot_count = 0
        self.store = ByteStore()
        self.slot = BackgroundSlot(owner=plan.name, agenda=agenda)
        self.qos = {"share": [0] * plan.lds_max, "limit": [0] * plan.lds_max}  # n/256, as hardware starts
        self.agenda = agenda
        self.faults = faults
        self.host_of = host_of

    @property
    def words(self) -> frozenset[str]:
        """How a command or a fault rule may name this device."""
        return frozenset((self.plan.name, self.serial))

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[str]: ...

    @abstractmethod
    def check_bindable(self, ld_id: int | None) -> None:
        """Raises CommandError when the switch must not bind this LD, or the whole device for None."""

    @abstractmethod
    def check_known(self, ld_id: int) -> None:
        """Raises CommandError when there is no such LD or host interface."""

    @abstractmethod
    def online_words(self, ld_id: int) -> set[str]:
        """The words under which a host may have the memory of this LD online."""

    @abstractmethod
    def locate(self, ld_id: int, *, address: int, size_bytes: int) -> list[Run]:
        """Physical runs behind an address range of one LD; CommandError when a host cannot reach all of it."""

    def identify(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "component_type": 3,
            "kind": plan.kind,
            "serial": self.serial,
            "switch": plan.switch,
            "port": plan.port,
            "capacity_bytes": plan.capacity_bytes,
            "granule_bytes": plan.granule_bytes,
            "lds_max": plan.lds_max,
            "capabilities": sorted(self.capabilities),
            "health": self.health,
            "firmware": plan.firmware,
            "boot_count": self.boot_count,
        }

    @abstractmethod
    def allocations(self, *, start: int) -> dict[str, Any]:
        """5401h: the sizes of the LDs from `start` on, in granules."""

    def get_qos(self, what: str, *, start: int, count: int) -> dict[str, Any]:
        """`what` is share or limit."""
        return {"start": start, "fractions": self.qos[what][start : start + count]}

    def set_qos(self, what: str, *, start: int, fractions: list[int]) -> dict[str, Any]:
        if start < 0 or start + len(fractions) > len(self.qos[what]):
            raise CommandError(Code.INVALID_INPUT, f"LDs {start} to {start + len(fractions) - 1}: not all exist")
        if not all(0 <= fraction <= 255 for fraction in fractions):
            raise CommandError(Code.INVALID_INPUT, "a fraction is n/256 with n from 0 to 255")
        self.qos[what][start : start + len(fractions)] = fractions
        return self.get_qos(what, start=start, count=len(fractions))

    def restart(self, *, volatile: bool, now_s: float) -> None:
        """The background operation is forgotten in the middle of its work; bytes stay as they are."""
        self.boot_count += 1
        self.slot.forget()
        if volatile:
            self.qos = {"share": [0] * self.plan.lds_max, "limit": [0] * self.plan.lds_max}
        self.resume(volatile=volatile, now_s=now_s)

    def resume(self, *, volatile: bool, now_s: float) -> None:  # noqa: B027 - most kinds have nothing to resume
        """After a restart: forget what is not kept, start the rest again from its beginning."""

    def replace(self, serial: str, *, now_s: float) -> None:
        """Somebody swapped the device: another serial, and media that never saw our bytes."""
        self.serial = serial
        self.store.zero([(0, self.plan.capacity_bytes)])
        self.boot_count = 0
        self.restart(volatile=True, now_s=now_s)

    def erase_s(self, size_bytes: int) -> float:
        return size_bytes / self.plan.sanitize_bytes_per_s

    def snapshot(self) -> dict[str, Any]:
        body = {"serial": self.serial, "health": self.health, "boot_count": self.boot_count, "qos": self.qos}
        return {**body, **self.table()}

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """What a kind adds to the kept state."""

    def drain_changes(self) -> Iterator[tuple[str, Any]]:
        """State to keep, in parts whose keys go below the device's own: a small change is a small write."""
        yield "", self.snapshot()

    def restore(self, kept: dict[str, Any]) -> None:
        """`kept` maps each part's key to its value."""
        body = kept[""]
        self.serial, self.health, self.boot_count = body["serial"], body["health"], body["boot_count"]
        self.qos = body["qos"]
