"""Whatever commands come in whatever order: the rack itself never gives a byte to two hosts, and never loses one."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fabric_manager.domain.units import MiB
from fabric_manager.southbound.simulator.codes import Code, Opcode
from fabric_manager.southbound.simulator.commands import execute
from fabric_manager.southbound.simulator.hosts import OnOffer
from fabric_manager.southbound.simulator.rack import Rack
from fabric_manager.southbound.simulator.switch import Target
from fabric_manager.southbound.simulator.topology import read_rack_file

PLAN = read_rack_file(Path(__file__).parents[1] / "drivers" / "rack.yaml")
HOSTS, TAGS = st.integers(0, 2), st.sampled_from("abcd")
SPANS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 2)), min_size=1, max_size=2)
STEP = 512 * MiB


class RackMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rack = Rack(PLAN, seed=0)
        self.now_s = 0.0
        self.kept: dict[str, Any] = {}

    @initialize()
    def every_host_has_the_dcd(self) -> None:
        """By chance alone, hardly an offer would find its host bound."""
        for host in range(3):
            self.rack.switches["sw-0"].connect((host, 3), Target(12, host))
            self.rack.touch("sw-0")

    def run(self, opcode: Opcode, component: str, **args: Any) -> None:
        reply = execute(self.rack, opcode, component, args, now_s=self.now_s)
        assert reply.code in list(Code)

    @rule(vcs=HOSTS, vppb=st.integers(0, 4), port=st.sampled_from([8, 9, 12, 13]), ld=st.integers(0, 4))
    def bind(self, vcs: int, vppb: int, port: int, ld: int) -> None:
        self.run(Opcode.BIND, "sw-0", vcs=vcs, vppb=vppb, port=port, ld_id=ld)

    @rule(vcs=HOSTS, vppb=st.integers(0, 4), option=st.sampled_from(["managed", "surprise"]))
    def unbind(self, vcs: int, vppb: int, option: str) -> None:
        self.run(Opcode.UNBIND, "sw-0", vcs=vcs, vppb=vppb, option=option)

    @rule(host=HOSTS, tag=TAGS, region=st.integers(0, 1), spans=SPANS)
    def offer(self, host: int, tag: str, region: int, spans: list[tuple[int, int]]) -> None:
        extents = [((start + 8 * region) * STEP, size * STEP) for start, size in spans]
        self.run(Opcode.ADD_CAPACITY, "dcd-0", host=host, tag=tag, region=region, extents=extents)

    @rule(host=HOSTS, tag=TAGS, sanitize=st.booleans(), forced=st.booleans())
    def release(self, host: int, tag: str, sanitize: bool, forced: bool) -> None:
        self.run(Opcode.RELEASE_CAPACITY, "dcd-0", host=host, tag=tag, sanitize=sanitize, forced=forced)

    @precondition(lambda self: any(self.rack.dcd("dcd-0").spaces.values()))
    @rule(pick=st.integers(0, 9), sanitize=st.booleans(), forced=st.booleans())
    def release_what_is_there(self, pick: int, sanitize: bool, forced: bool) -> None:
        there = sorted({(host, e.tag) for host, space in self.rack.dcd("dcd-0").spaces.items() for e in space})
        host, tag = there[pick % len(there)]
        self.run(Opcode.RELEASE_CAPACITY, "dcd-0", host=host, tag=tag, sanitize=sanitize, forced=forced)

    @rule(ld=st.integers(0, 4), device=st.sampled_from(["mld-0", "mld-1", "sld-0", "dcd-0"]))
    def sanitize(self, ld: int, device: str) -> None:
        self.run(Opcode.SANITIZE, device, ld_id=ld)

    @rule(sizes=st.lists(st.integers(0, 6), max_size=5))
    def carve(self, sizes: list[int]) -> None:
        self.run(Opcode.SET_LD_ALLOCATIONS, "mld-1", start=0, multipliers=sizes)

    @rule(
        host=st.sampled_from(["node-0", "node-1", "node-2"]),
        on_offer=st.sampled_from(OnOffer),
        tag=TAGS,
        online=st.booleans(),
    )
    def host_behaves(self, host: str, on_offer: OnOffer, tag: str, online: bool) -> None:
        self.rack.hosts[host].on_offer = on_offer
        (self.rack.hosts[host].online.add if online else self.rack.hosts[host].online.discard)(tag)

    @rule(seconds=st.sampled_from([0.001, 0.03, 0.1, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.rack.advance(self.now_s)

    @rule(component=st.sampled_from(["*", "sw-0", "mld-1", "dcd-0"]), volatile=st.booleans())
    def restart(self, component: str, volatile: bool) -> None:
        self.rack.restart(component, volatile=volatile, now_s=self.now_s)

    @rule()
    def come_back_from_kept_state(self) -> None:
        before = [part.snapshot() for part in self.rack.switches.values()]
        spaces = {host: sorted(map(repr, space)) for host, space in self.rack.dcd("dcd-0").spaces.items() if space}
        self.keep()
        self.rack = Rack(PLAN, seed=0)
        self.rack.restore(self.kept)
        self.now_s = 0.0
        assert [part.snapshot() for part in self.rack.switches.values()] == before
        again = self.rack.dcd("dcd-0").spaces
        assert {host: sorted(map(repr, space)) for host, space in again.items() if space} == spaces
        self.rack.restart("*", volatile=False, now_s=self.now_s)

    def keep(self) -> None:
        for key, value in self.rack.drain_changes():
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value

    @invariant()
    def an_ld_has_one_host(self) -> None:
        targets = list(self.rack.switches["sw-0"].bindings.values())
        assert len(targets) == len(set(targets))

    @invariant()
    def physical_bytes_have_one_extent(self) -> None:
        dcd = self.rack.dcd("dcd-0")
        held = sorted(run for space in dcd.spaces.values() for extent in space for run in extent.runs)
        assert all(start + size <= following for (start, size), (following, _) in pairwise(held))
        assert sum(size for _, size in held) + dcd.blocks.free_bytes == dcd.plan.capacity_bytes
        for space in dcd.spaces.values():
            assert all(sum(size for _, size in e.runs) == e.size_bytes for e in space)

    @invariant()
    def addresses_of_a_host_have_one_extent(self) -> None:
        for space in self.rack.dcd("dcd-0").spaces.values():
            spans = sorted((e.start_bytes, e.end_bytes) for e in space)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))

    @invariant()
    def lds_fit_the_device(self) -> None:
        mld = self.rack.mld("mld-1")
        assert sum(mld.granules) * mld.plan.granule_bytes <= mld.plan.capacity_bytes


TestRackMachine = RackMachine.TestCase
TestRackMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
