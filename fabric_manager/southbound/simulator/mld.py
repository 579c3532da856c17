"""A device carved into logical devices of whole granules; an SLD is one LD that is bound as a whole port."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fabric_manager.southbound.driver import LDS_PER_MLD_MAX
from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.codes import Code, CommandError, Opcode
from fabric_manager.southbound.simulator.device import Device, HostOf
from fabric_manager.southbound.simulator.faults import FaultPlan, Knob
from fabric_manager.southbound.simulator.memory import Run
from fabric_manager.southbound.simulator.topology import GRANULES, DevicePlan


class Mld(Device):
    def __init__(self, plan: DevicePlan, *, agenda: Agenda, faults: FaultPlan, host_of: HostOf) -> None:
        super().__init__(plan, agenda=agenda, faults=faults, host_of=host_of)
        sizes_bytes = (plan.capacity_bytes,) if plan.kind == "sld" else plan.ld_sizes_bytes
        self.granules = [size // plan.granule_bytes for size in sizes_bytes]

    @property
    def capabilities(self) -> frozenset[str]:
        if self.plan.kind == "sld":
            return frozenset({"sanitize_ld"})
        return frozenset({"qos", "sanitize_ld"} | ({"ld_resize"} if self.plan.ld_resize else set()))

    def check_known(self, ld_id: int) -> None:
        if not 0 <= ld_id < len(self.granules) or not self.granules[ld_id]:
            raise CommandError(Code.INVALID_INPUT, f"{self.serial} has no LD {ld_id}")

    def check_bindable(self, ld_id: int | None) -> None:
        if (ld_id is None) != (self.plan.kind == "sld"):
            raise CommandError(Code.INVALID_INPUT, f"{self.serial} is an {self.plan.kind}: bind its LDs, or it whole")
        if Knob.NO_LD_RANGE_CHECK not in self.faults.knobs:
            self.check_known(ld_id or 0)
        self._refuse_if_disabled(ld_id or 0)

    def online_words(self, ld_id: int) -> set[str]:
        return {f"{self.serial}/{ld_id}"}

    def locate(self, ld_id: int, *, address: int, size_bytes: int) -> list[Run]:
        self.check_known(ld_id)
        self._refuse_if_disabled(ld_id)
        start, size = self._run(ld_id)
        if address < 0 or address + size_bytes > size:
            raise CommandError(Code.INVALID_PHYSICAL_ADDRESS, f"LD {ld_id} ends at {size} B")
        return [(start + address, size_bytes)]

    def ld_info(self) -> dict[str, Any]:
        return {"memory_bytes": self.plan.capacity_bytes, "ld_count": len(self.granules), "telemetry": 0}

    def allocations(self, *, start: int) -> dict[str, Any]:
        return {
            "ld_count": len(self.granules),
            "granularity": GRANULES.index(self.plan.granule_bytes),
            "start": start,
            "multipliers": self.granules[start:],
        }

    def set_allocations(self, *, start: int, multipliers: list[int]) -> dict[str, Any]:
        """Later LDs begin where the earlier ones now end, and so meet bytes that were another LD's."""
        if "ld_resize" not in self.capabilities:
            raise CommandError(Code.UNSUPPORTED, f"{self.serial} cannot be re-carved")
        self.slot.refuse_if_busy()
        if Knob.NO_BOUND_CHECK not in self.faults.knobs and any(map(self.host_of, range(len(self.granules)))):
            raise CommandError(Code.INVALID_INPUT, f"an LD of {self.serial} is bound")
        self.granules = self._carved(start, multipliers)
        return self.allocations(start=start)

    def sanitize(self, ld_id: int, *, now_s: float) -> None:
        self.check_known(ld_id)
        if Knob.NO_BOUND_CHECK not in self.faults.knobs and self.host_of(ld_id) is not None:
            raise CommandError(Code.INVALID_INPUT, f"LD {ld_id} of {self.serial} is bound")
        run = self._run(ld_id)
        self.slot.start(
            Opcode.SANITIZE,
            ld_id=ld_id,
            duration_s=self.erase_s(run[1]),
            now_s=now_s,
            finish=lambda _: self.faults.erase(self.store, [run], opcode=Opcode.SANITIZE, words=self.words),
        )

    def table(self) -> dict[str, Any]:
        return {"granules": self.granules}

    def restore(self, kept: dict[str, Any]) -> None:
        super().restore(kept)
        self.granules = kept[""]["granules"]

    def _carved(self, start: int, multipliers: Sequence[int]) -> list[int]:
        end = start + len(multipliers)
        if not 0 <= start <= len(self.granules) or end > LDS_PER_MLD_MAX or any(m < 0 for m in multipliers):
            raise CommandError(Code.INVALID_INPUT, f"LDs {start} to {end - 1} cannot be carved")
        carved = [*self.granules[:start], *multipliers, *self.granules[end:]]
        if sum(carved) * self.plan.granule_bytes > self.plan.capacity_bytes:
            raise CommandError(Code.INVALID_INPUT, f"{sum(carved)} granules are more than {self.serial} holds")
        return carved

    def _refuse_if_disabled(self, ld_id: int) -> None:
        if self.slot.running_ld == ld_id:
            raise CommandError(Code.MEDIA_DISABLED, f"LD {ld_id} of {self.serial} is being erased")

    def _run(self, ld_id: int) -> Run:
        starts = [0]
        for granules in self.granules:
            starts.append(starts[-1] + granules * self.plan.granule_bytes)
        first, end = list(pairwise(starts))[ld_id]
        return first, end - first
