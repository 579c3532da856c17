"""Reads `hardware:` of a rack file: what the simulated rack is built from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fabric_manager.domain.units import GiB, MiB, parse_size
from fabric_manager.southbound.driver import LDS_PER_MLD_MAX

GRANULES = (256 * MiB, 512 * MiB, GiB)  # CXL r3.1, Get LD Allocations
SANITIZE_BYTES_PER_S = 32 * GiB
EXTENTS_MAX = 4096


class RackFileError(Exception):
    """The rack file cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    width: int
    speed_gt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    name: str
    serial: str
    upstream: tuple[int, ...]  # one virtual switch per upstream port, numbered in this order
    vppbs: int  # per virtual switch
    hdm_decoders: int
    link: LinkPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlan:
    base_bytes: int
    size_bytes: int
    sanitize_on_release: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    name: str
    serial: str
    kind: str  # sld, mld, dcd
    switch: str
    port: int
    capacity_bytes: int
    granule_bytes: int  # of LD sizes; the block of a DCD
    lds_max: int
    ld_sizes_bytes: tuple[int, ...]
    ld_resize: bool
    regions: tuple[RegionPlan, ...]
    extents_max: int
    sanitize_bytes_per_s: int
    firmware: str
    link: LinkPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    name: str
    ports: tuple[tuple[str, int], ...]
    on_offer: str
    on_release: str
    answer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RackPlan:
    seed: int
    switches: tuple[SwitchPlan, ...]
    devices: tuple[DevicePlan, ...]
    hosts: tuple[HostPlan, ...]


def read_rack_file(path: Path) -> RackPlan:
    """Raises RackFileError."""
    try:
        document = yaml.safe_load(path.read_text())
        return parse_hardware(document["hardware"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RackFileError(f"{path}: {type(error).__name__}: {error}") from error


def parse_hardware(hardware: Mapping[str, Any]) -> RackPlan:
    """Raises ValueError, KeyError or TypeError; `read_rack_file` says which file."""
    plan = RackPlan(
        seed=int(hardware.get("seed", 0)),
        switches=tuple(_switch(item) for item in hardware["switches"]),
        devices=tuple(_device(item) for item in hardware["devices"]),
        hosts=tuple(_host(item) for item in hardware["hosts"]),
    )
    _check_names(plan)
    _check_wiring(plan)
    return plan


def _switch(item: Mapping[str, Any]) -> SwitchPlan:
    return SwitchPlan(
        name=item["name"],
        serial=str(item["serial"]),
        upstream=_ports(str(item["upstream"])),
        vppbs=int(item["vppbs"]),
        hdm_decoders=int(item.get("hdm_decoders", 10)),
        link=_link(item.get("link", "x16 32GT")),
    )


def _device(item: Mapping[str, Any]) -> DevicePlan:
    kind, capacity_bytes = item["kind"], parse_size(item["capacity"])
    if kind not in ("sld", "mld", "dcd"):
        raise ValueError(f"device {item['name']}: kind is {kind!r}; know sld, mld, dcd")
    switch, port = _port(item["port"])
    granule_bytes = parse_size(item["block"] if kind == "dcd" else item.get("granule", "256 MiB"))
    if kind == "mld" and granule_bytes not in GRANULES:
        raise ValueError(f"device {item['name']}: a granule is 256 MiB, 512 MiB or 1 GiB")
    ld_sizes_bytes = _ld_sizes(item["lds"]) if kind == "mld" else ()
    if sum(ld_sizes_bytes) > capacity_bytes or any(size % granule_bytes for size in ld_sizes_bytes):
        raise ValueError(f"device {item['name']}: LDs do not fit the capacity, or are no whole granules")
    return DevicePlan(
        name=item["name"],
        serial=str(item["serial"]),
        kind=kind,
        switch=switch,
        port=port,
        capacity_bytes=capacity_bytes,
        granule_bytes=granule_bytes,
        lds_max={"sld": 1, "mld": LDS_PER_MLD_MAX, "dcd": int(item.get("hosts", LDS_PER_MLD_MAX))}[kind],
        ld_sizes_bytes=ld_sizes_bytes,
        ld_resize=bool(item.get("ld_resize", False)),
        regions=_regions(item["regions"]) if kind == "dcd" else (),
        extents_max=int(item.get("extents_max", EXTENTS_MAX)),
        sanitize_bytes_per_s=_speed(item.get("sanitize_bytes_per_s", SANITIZE_BYTES_PER_S)),
        firmware=str(item.get("firmware", "sim-1")),
        link=_link(item.get("link", "x16 32GT")),
    )


def _host(item: Mapping[str, Any]) -> HostPlan:
    return HostPlan(
        name=item["name"],
        ports=tuple(_port(text) for text in item["ports"]),
        on_offer=item.get("on_offer", "accept"),
        on_release=item.get("on_release", "give_back"),
        answer_s=float(item.get("answer_s", 0.02)),
    )


def _regions(items: Sequence[str]) -> tuple[RegionPlan, ...]:
    """ "2 TiB sanitize" or "2 TiB": each region follows the one before it in every host's address space."""
    regions: list[RegionPlan] = []
    base_bytes = 0
    for text in items:
        size_bytes = parse_size(text.removesuffix("sanitize").strip())
        sanitize = text.endswith("sanitize")
        regions.append(RegionPlan(base_bytes=base_bytes, size_bytes=size_bytes, sanitize_on_release=sanitize))
        base_bytes += size_bytes
    return tuple(regions)


def _ld_sizes(text: str) -> tuple[int, ...]:
    """ "16 x 64 GiB", or several such groups with commas between them."""
    sizes: list[int] = []
    for group in text.split(","):
        count, size = group.split(" x ")
        sizes += [parse_size(size.strip())] * int(count)
    if not 0 < len(sizes) <= LDS_PER_MLD_MAX:
        raise ValueError(f"lds {text!r}: an MLD has 1 to {LDS_PER_MLD_MAX} LDs")
    return tuple(sizes)


def _ports(text: str) -> tuple[int, ...]:
    """ "0-7" or "3"."""
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1))


def _port(text: str) -> tuple[str, int]:
    """ "sw-0/3"."""
    switch, _, port = text.rpartition("/")
    return switch, int(port)


def _link(text: str) -> LinkPlan:
    match = re.fullmatch(r"x(\d+) (\d+)GT", text)
    if match is None:
        raise ValueError(f"link {text!r}: write it like 'x16 32GT'")
    return LinkPlan(width=int(match[1]), speed_gt=int(match[2]))


def _speed(value: str | int) -> int:
    speed = parse_size(value) if isinstance(value, str) else value
    if speed <= 0:
        raise ValueError("sanitize_bytes_per_s is not above zero")
    return speed


def _check_names(plan: RackPlan) -> None:
    # One command namespace: a component is addressed by its name or its serial.
    words = [w for switch in plan.switches for w in {switch.name, switch.serial}]
    words += [w for device in plan.devices for w in {device.name, device.serial}]
    words += [host.name for host in plan.hosts]
    twice = sorted({w for w in words if words.count(w) > 1}) if len(set(words)) < len(words) else []
    # The kept state writes them before a colon, next to these other keys.
    if odd := [w for w in words if ":" in w or w in ("", "*", "page", "boot", "settings")]:
        raise ValueError(f"cannot be a name or serial: {odd[0]!r}")
    if twice:
        raise ValueError(f"used twice as a name or serial: {', '.join(twice)}")


def _check_wiring(plan: RackPlan) -> None:
    upstream = {(switch.name, port) for switch in plan.switches for port in switch.upstream}
    downstream = [(device.switch, device.port) for device in plan.devices]
    known = {switch.name for switch in plan.switches}
    if missing := [port for host in plan.hosts for port in host.ports if port not in upstream]:
        raise ValueError(f"a host hangs on {missing[0]}, which is no upstream port")
    if len(set(downstream)) < len(downstream) or upstream & set(downstream):
        raise ValueError("two components hang on one port")
    if unknown := {switch for switch, _ in downstream} - known:
        raise ValueError(f"a device hangs on unknown switch {min(unknown)!r}")
