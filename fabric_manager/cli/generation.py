"""Topology files for rehearsals: as many simulated devices and hosts as somebody wants, spread evenly over switches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

Item = Mapping[str, Any]

PORTS_PER_SWITCH = 32  # what a switch has when nobody says how many there are
PORTS_PER_SWITCH_MAX = 256
DCD_HOSTS_MAX = 16
LD_VPPBS = 4  # of each host, for logical devices of MLDs; every DCD on its switch takes one more
POOLS = {"mld": "high-performance", "dcd": "standard"}
FACTS: Mapping[str, Item] = {
    "mld": {"bandwidth_bytes_per_s": 64_000_000_000, "latency_ns": 250},
    "dcd": {"bandwidth_bytes_per_s": 32_000_000_000, "latency_ns": 400},
}
HARDWARE: Mapping[str, Item] = {
    "mld": {"capacity": "1 TiB", "granule": "256 MiB", "lds": "16 x 64 GiB"},
    "dcd": {"capacity": "2 TiB", "block": "2 MiB", "regions": ["2 TiB sanitize"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much there is. Raises ValueError for what cannot be wired."""

    devices: int
    hosts: int
    switches: int
    kind: str  # mld, dcd, or mixed: every third device is a DCD

    def __post_init__(self) -> None:
        ports = -(-self.devices // self.switches) + -(-self.hosts // self.switches)
        if ports > PORTS_PER_SWITCH_MAX:
            least = -(-(self.devices + self.hosts) // (PORTS_PER_SWITCH_MAX - 1))  # rounding costs a port
            raise ValueError(f"a switch has {PORTS_PER_SWITCH_MAX} ports: take at least {least} switches")


def switches_for(devices: int, hosts: int) -> int:
    return max(1, -(-(devices + hosts) // PORTS_PER_SWITCH))


def topology_text(scale: Scale) -> str:
    """A file for `serve --topology`, one thing a line."""
    return "".join(_lines(scale))


def kind_of(number: int, scale: Scale) -> str:
    if scale.kind == "mixed":
        diagonal = number % scale.switches + number // scale.switches  # so every switch has some of both
        return "dcd" if diagonal % 3 == 2 else "mld"
    return scale.kind


def _lines(scale: Scale) -> Iterator[str]:
    kinds = [kind_of(number, scale) for number in range(scale.devices)]
    yield f"# Generated: {scale.devices} devices, {scale.hosts} hosts, {scale.switches} switches.\n\n"
    yield "hardware: # only the simulator reads this\n  seed: 1\n"
    yield from _part("switches", (_switch(number, kinds, scale) for number in range(scale.switches)))
    yield from _part("devices", (_device(number, kind, scale) for number, kind in enumerate(kinds)))
    wired = ({"name": f"node-{n}", "ports": ["/".join(_place(n, scale))]} for n in range(scale.hosts))
    yield from _part("hosts", wired)
    yield "\ninventory: # what hardware cannot tell\n"
    yield from _part("fabrics", [{"name": "rack-0", "driver": "simulator"}])
    tiers = {"mld": "high", "dcd": "standard"}
    yield from _part("pools", ({"name": POOLS[k], "kind": k, "tier": tiers[k]} for k in POOLS if k in kinds))
    yield from _part("devices", (_facts(number, kind, scale) for number, kind in enumerate(kinds)))
    yield from _part("hosts", (_host(number, scale) for number in range(scale.hosts)))


def _part(name: str, items: Iterator[Item] | list[Item]) -> Iterator[str]:
    yield f"  {name}:\n"
    nothing = True
    for item in items:
        nothing = False
        text = yaml.safe_dump(dict(item), default_flow_style=True, sort_keys=False, width=10_000)
        yield f"    - {text}"
    if nothing:
        yield "    []\n"


def _switch(number: int, kinds: list[str], scale: Scale) -> Item:
    hosts = _hosts_of(number, scale)
    dcds = sum(kind == "dcd" for kind in kinds[number :: scale.switches])
    return {
        "name": f"sw-{number}",
        "serial": f"SIM-SW-{number:04}",
        "upstream": f"0-{hosts - 1}" if hosts > 1 else "0",
        "vppbs": LD_VPPBS + dcds,
    }


def _hosts_of(switch: int, scale: Scale) -> int:
    return len(range(switch, scale.hosts, scale.switches))


def _place(host: int, scale: Scale) -> tuple[str, str]:
    return f"sw-{host % scale.switches}", str(host // scale.switches)


def _name(number: int, kind: str) -> str:
    return f"{kind}-{number}"


def _serial(number: int, kind: str) -> str:
    return f"SIM-{kind.upper()}-{number:04}"


def _device(number: int, kind: str, scale: Scale) -> Item:
    switch, place = number % scale.switches, number // scale.switches
    hosts = _hosts_of(switch, scale)
    shared = {"hosts": min(max(hosts, 1), DCD_HOSTS_MAX)} if kind == "dcd" else {}
    port = f"sw-{switch}/{max(hosts, 1) + place}"  # a switch has one upstream port at least
    return {"name": _name(number, kind), "serial": _serial(number, kind), "kind": kind, "port": port} | {
        **HARDWARE[kind],
        **shared,
    }


def _facts(number: int, kind: str, scale: Scale) -> Item:
    names = {"name": _name(number, kind), "serial": _serial(number, kind), "fabric": "rack-0", "pool": POOLS[kind]}
    return names | dict(FACTS[kind]) | {"failure_domain": f"shelf-{number % scale.switches}"}


def _host(number: int, scale: Scale) -> Item:
    switch, port = _place(number, scale)
    kubernetes = {"cluster": "demo", "node": f"node-{number}"}
    return {"name": f"node-{number}", "ports": [{"switch": switch, "port": int(port)}], "kubernetes": kubernetes}
