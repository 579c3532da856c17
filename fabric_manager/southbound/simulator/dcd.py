"""A dynamic-capacity device: an address space for each host, one pool of physical blocks behind them all."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fabric_manager.domain.units import MiB
from fabric_manager.southbound.driver import ExtentState
from fabric_manager.southbound.simulator import extents
from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.codes import Code, CommandError, Opcode
from fabric_manager.southbound.simulator.device import Device, HostOf
from fabric_manager.southbound.simulator.extents import REACHABLE, Extent
from fabric_manager.southbound.simulator.faults import FaultPlan
from fabric_manager.southbound.simulator.hosts import OnOffer, OnRelease
from fabric_manager.southbound.simulator.memory import FreeBlocks, Run
from fabric_manager.southbound.simulator.topology import DevicePlan, RegionPlan


class Dcd(Device):
    """Blocks are taken from the pool when they are offered and return when the extent is gone."""

    def __init__(self, plan: DevicePlan, *, agenda: Agenda, faults: FaultPlan, host_of: HostOf) -> None:
        super().__init__(plan, agenda=agenda, faults=faults, host_of=host_of)
        self.spaces: defaultdict[int, list[Extent]] = defaultdict(list)
        self.blocks = FreeBlocks(plan.capacity_bytes)
        self.generation = 0  # of the extent lists
        self._changed: set[tuple[int, str]] = set()  # host and tag, since the last drain

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({"qos", "dc_prescriptive", "dc_tag_release", "sanitize_on_release"})

    def check_known(self, ld_id: int) -> None:
        if not 0 <= ld_id < self.plan.lds_max:
            raise CommandError(Code.INVALID_INPUT, f"{self.serial} has no host interface {ld_id}")

    def check_bindable(self, ld_id: int | None) -> None:
        if ld_id is None:
            raise CommandError(Code.INVALID_INPUT, f"{self.serial} is bound by host interface, not whole")
        self.check_known(ld_id)

    def online_words(self, ld_id: int) -> set[str]:
        return {extent.tag for extent in self.spaces[ld_id] if extent.state in REACHABLE}

    def locate(self, ld_id: int, *, address: int, size_bytes: int) -> list[Run]:
        return extents.locate(self.spaces[ld_id], address=address, size_bytes=size_bytes)

    def allocations(self, *, start: int) -> dict[str, Any]:
        """Its LDs are host interfaces, with QoS and without memory of their own."""
        count = self.plan.lds_max
        return {"ld_count": count, "granularity": 0, "start": start, "multipliers": [0] * (count - start)}

    def info(self) -> dict[str, Any]:
        return {
            "hosts": self.plan.lds_max,
            "regions_per_host": len(self.plan.regions),
            "add_policies": ["prescriptive"],
            "release_policies": ["tag"],
            "capacity_256mib": self.plan.capacity_bytes // (256 * MiB),
        }

    def region_configuration(self, *, host: int) -> dict[str, Any]:
        self.check_known(host)
        return {"host": host, "regions": [self._region_shown(region) for region in self.plan.regions]}

    def extent_list(self, *, host: int) -> dict[str, Any]:
        self.check_known(host)
        shown = [e.shown() for e in sorted(self.spaces[host], key=lambda e: e.start_bytes)]
        return {"host": host, "generation": self.generation, "extents": shown}

    def offer(self, *, host: int, tag: str, region: int, spans: Sequence[Run], now_s: float) -> None:
        """5604h, prescriptive. Done when the host was told; its answer comes later."""
        self._check_host(host)
        if self._offered_already(host, tag):
            return
        if not 0 <= region < len(self.plan.regions):
            raise CommandError(Code.INVALID_INPUT, f"no region {region}")
        extents.check_spans(
            spans, region=self.plan.regions[region], block_bytes=self.plan.granule_bytes, space=self.spaces[host]
        )
        self._check_room(spans)
        sanitize = self.plan.regions[region].sanitize_on_release
        offered = [self._taken(span, tag=tag, sanitize=sanitize) for span in spans]
        self._change(host, tag, [*self.spaces[host], *offered])
        self._ask(host, tag, now_s=now_s)

    def release(self, *, host: int, tag: str, sanitize: bool, forced: bool, now_s: float) -> None:
        """5605h by tag. Forced: the host loses it at once; otherwise it is asked, and asking again is one request."""
        self.check_known(host)
        if not forced:
            self._check_host(host)
        mine = self._tagged(host, tag)
        if not mine:
            raise CommandError(Code.INVALID_PHYSICAL_ADDRESS, f"nothing carries tag {tag} at host interface {host}")
        if not forced and any(e.state is ExtentState.OFFERED for e in mine):
            raise CommandError(Code.INVALID_PHYSICAL_ADDRESS, f"tag {tag} is offered and not answered yet")
        if sanitize:
            self._replace(host, tag, lambda e: replace(e, sanitize=True))
        if forced:
            self._lose(host, tag)
            self._taken_back(host, tag, now_s=now_s)
        else:
            self._move(host, tag, ExtentState.ACCEPTED, ExtentState.RELEASE_REQUESTED)
            self._ask(host, tag, now_s=now_s)

    def ask_again(self, *, host: int, now_s: float) -> None:
        """The host's behavior changed: it looks once more at what it has not answered."""
        for tag in sorted({e.tag for e in self.spaces[host]}):
            self._ask(host, tag, now_s=now_s)

    def give_back(self, *, host: int, tag: str, now_s: float) -> None:
        """The host gives back what it was asked for, whatever its behavior."""
        if not any(e.state is ExtentState.RELEASE_REQUESTED for e in self._tagged(host, tag)):
            raise CommandError(Code.INVALID_INPUT, f"tag {tag} was not asked back")
        self._taken_back(host, tag, now_s=now_s)

    def resume(self, *, volatile: bool, now_s: float) -> None:
        self.agenda.drop(owner=self.plan.name, kind="extents")
        for host in list(self.spaces):
            for tag in sorted({e.tag for e in self.spaces[host]}):
                if volatile:
                    self._drop(host, tag, *ExtentState)
                else:
                    self._ask(host, tag, now_s=now_s)
                    self._erase_later(host, tag, now_s=now_s)

    def table(self) -> dict[str, Any]:
        return {"generation": self.generation}

    def drain_changes(self) -> Iterator[tuple[str, Any]]:
        yield from super().drain_changes()
        changed, self._changed = self._changed, set()
        for host, tag in sorted(changed):
            yield f":{host}:{tag}", [extent.kept() for extent in self._tagged(host, tag)] or None

    def restore(self, kept: dict[str, Any]) -> None:
        super().restore(kept)
        self.generation = kept[""]["generation"]
        for key in kept.keys() - {""}:
            _, host, _ = key.split(":", 2)
            self.spaces[int(host)] += [extents.extent_from_kept(item) for item in kept[key]]
        used = [run for space in self.spaces.values() for extent in space for run in extent.runs]
        self.blocks = FreeBlocks(self.plan.capacity_bytes, used=used)

    # What the host does, some time after it was asked.

    def _ask(self, host: int, tag: str, *, now_s: float) -> None:
        if (server := self.host_of(host)) is not None:
            self.agenda.at(
                now_s + server.answer_s,
                owner=self.plan.name,
                kind="extents",
                action=lambda at_s: self._answered(host, tag, now_s=at_s),
            )

    def _answered(self, host: int, tag: str, *, now_s: float) -> None:
        """By the host's behavior at this moment; states that need no answer are left alone."""
        server = self.host_of(host)
        states = {e.state for e in self._tagged(host, tag)}
        if server is None:
            return  # unbound meanwhile: nobody is there to answer
        if ExtentState.OFFERED in states:
            self._answer_offer(host, tag, server.on_offer)
        holds = server.on_release is OnRelease.HOLD or tag in server.online
        if ExtentState.RELEASE_REQUESTED in states and not holds:
            self._taken_back(host, tag, now_s=now_s)

    def _answer_offer(self, host: int, tag: str, how: OnOffer) -> None:
        if how is OnOffer.PARTIAL:
            self._keep_first(host, tag)
        if how in (OnOffer.ACCEPT, OnOffer.PARTIAL):
            self._move(host, tag, ExtentState.OFFERED, ExtentState.ACCEPTED)
        elif how is OnOffer.REFUSE:
            self._drop(host, tag, ExtentState.OFFERED)

    def _keep_first(self, host: int, tag: str) -> None:
        first, *others = [e for e in self._tagged(host, tag) if e.state is ExtentState.OFFERED]
        kept: Extent | None = first
        given_back = tuple(run for extent in others for run in extent.runs)
        if not others:
            kept, given_back = extents.first_half(first, block_bytes=self.plan.granule_bytes)
        self.blocks.give_back(given_back)
        rest = [e for e in self.spaces[host] if e is not first and e not in others]
        self._change(host, tag, [*rest, *([kept] if kept else [])])

    def _taken_back(self, host: int, tag: str, *, now_s: float) -> None:
        """No host reaches it any more: erase it, or let it go as it is."""
        still = (ExtentState.OFFERED, *REACHABLE)
        if not any(e.state in still for e in self._tagged(host, tag)):
            return  # asked twice: it is on its way out already
        self._replace(
            host,
            tag,
            lambda e: replace(e, state=ExtentState.SANITIZING) if e.state in still and e.sanitize else e,
        )
        self._drop(host, tag, *still)
        self._erase_later(host, tag, now_s=now_s)

    def _erase_later(self, host: int, tag: str, *, now_s: float) -> None:
        size_bytes = sum(e.size_bytes for e in self._tagged(host, tag) if e.state is ExtentState.SANITIZING)
        if size_bytes:
            self.agenda.at(
                now_s + self.erase_s(size_bytes),
                owner=self.plan.name,
                kind="extents",
                action=lambda at_s: self._erased(host, tag, now_s=at_s),
            )

    def _erased(self, host: int, tag: str, *, now_s: float) -> None:
        runs = [r for e in self._tagged(host, tag) if e.state is ExtentState.SANITIZING for r in e.runs]
        if not runs:
            return  # a second timer for the same erasure
        code = self.faults.erase(self.store, runs, opcode=Opcode.RELEASE_CAPACITY, words=self.words)
        if code is Code.SUCCESS:
            self._drop(host, tag, ExtentState.SANITIZING)
        else:
            self.health = "degraded"
            self._erase_later(host, tag, now_s=now_s)  # the device tries again by itself

    # Checks and small changes.

    def _check_host(self, host: int) -> None:
        self.check_known(host)
        if self.host_of(host) is None:
            raise CommandError(Code.INVALID_INPUT, f"host interface {host} of {self.serial} is not bound")

    def _offered_already(self, host: int, tag: str) -> bool:
        """One tag is one offer. CommandError when the tag is on its way out, or is another host's."""
        if any(e.tag == tag for other, space in self.spaces.items() if other != host for e in space):
            raise CommandError(Code.INVALID_INPUT, f"tag {tag} is at another host")
        states = {e.state for e in self._tagged(host, tag)}
        if states - {ExtentState.OFFERED, ExtentState.ACCEPTED}:
            raise CommandError(Code.INVALID_EXTENT_LIST, f"tag {tag} is being released")
        return bool(states)

    def _check_room(self, spans: Sequence[Run]) -> None:
        wanted_bytes = sum(size for _, size in spans)
        if wanted_bytes > self.blocks.free_bytes:
            raise CommandError(Code.RESOURCES_EXHAUSTED, f"{wanted_bytes} B wanted, {self.blocks.free_bytes} B left")
        if sum(map(len, self.spaces.values())) + len(spans) > self.plan.extents_max:
            raise CommandError(Code.RESOURCES_EXHAUSTED, f"no more than {self.plan.extents_max} extents")

    def _taken(self, span: Run, *, tag: str, sanitize: bool) -> Extent:
        start, size = span
        return Extent(
            start_bytes=start,
            size_bytes=size,
            tag=tag,
            state=ExtentState.OFFERED,
            sanitize=sanitize,
            runs=self.blocks.take(size),
        )

    def _region_shown(self, region: RegionPlan) -> dict[str, Any]:
        return {
            "base": region.base_bytes,
            "decode_256mib": region.size_bytes // (256 * MiB),
            "length": region.size_bytes,
            "block": self.plan.granule_bytes,
            "sanitize_on_release": region.sanitize_on_release,
        }

    def _tagged(self, host: int, tag: str) -> list[Extent]:
        return [e for e in self.spaces[host] if e.tag == tag]

    def _lose(self, host: int, tag: str) -> None:
        if (server := self.host_of(host)) is not None and tag in self.online_words(host):
            server.lose({tag})

    def _move(self, host: int, tag: str, before: ExtentState, after: ExtentState) -> None:
        self._replace(host, tag, lambda e: replace(e, state=after) if e.state is before else e)

    def _replace(self, host: int, tag: str, change: Callable[[Extent], Extent]) -> None:
        self._change(host, tag, [change(e) if e.tag == tag else e for e in self.spaces[host]])

    def _drop(self, host: int, tag: str, *states: ExtentState) -> None:
        gone = [e for e in self._tagged(host, tag) if e.state in states]
        self.blocks.give_back(run for extent in gone for run in extent.runs)
        self._change(host, tag, [e for e in self.spaces[host] if e not in gone])

    def _change(self, host: int, tag: str, space: list[Extent]) -> None:
        self.generation += 1
        self._changed.add((host, tag))
        self.spaces[host] = space
