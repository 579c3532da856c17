"""The simulated servers: how they answer offers and requests, and which memory they have online."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from fabric_manager.southbound.simulator.topology import HostPlan


class OnOffer(StrEnum):
    ACCEPT = "accept"
    REFUSE = "refuse"
    PARTIAL = "partial"  # the first extent only; of a single extent the first half, in whole blocks
    SILENT = "silent"


class OnRelease(StrEnum):
    GIVE_BACK = "give_back"
    HOLD = "hold"  # until told otherwise


class Host:
    """`online` holds words for memory that applications use: a tag, or "serial/ld" for an LD."""

    def __init__(self, plan: HostPlan) -> None:
        self.name = plan.name
        self.ports = frozenset(plan.ports)
        self.on_offer = OnOffer(plan.on_offer)
        self.on_release = OnRelease(plan.on_release)
        self.answer_s = plan.answer_s
        self.online: set[str] = set()
        self.machine_checks = 0  # how often memory that was online was taken away

    def lose(self, words: set[str]) -> None:
        """The memory named by `words` is gone at once."""
        self.machine_checks += len(self.online & words)
        self.online -= words

    def snapshot(self) -> dict[str, Any]:
        return {
            "on_offer": self.on_offer.value,
            "on_release": self.on_release.value,
            "answer_s": self.answer_s,
            "online": sorted(self.online),
            "machine_checks": self.machine_checks,
        }

    def drain_changes(self) -> Iterator[tuple[str, Any]]:
        yield "", self.snapshot()

    def restore(self, kept: dict[str, Any]) -> None:
        self.on_offer, self.on_release = OnOffer(kept["on_offer"]), OnRelease(kept["on_release"])
        self.answer_s = kept["answer_s"]
        self.online, self.machine_checks = set(kept["online"]), kept["machine_checks"]
