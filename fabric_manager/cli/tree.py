"""The graph of the fabrics as a tree of lines."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabric_manager.cli import formatting
from fabric_manager.client import Document

LOOSE = "in no fabric"
DEVICE_BAR_WIDTH = 12
HELD_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    text: str
    under: Sequence["Branch"] = ()


def lines(branch: Branch, *, indent: str = "") -> Iterator[str]:
    """`branch` and all under it, joined with box lines."""
    yield branch.text
    for number, each in enumerate(branch.under, start=1):
        last = number == len(branch.under)
        below = lines(each)
        yield f"{indent}{'└─' if last else '├─'} {next(below)}"
        yield from (f"{indent}{'  ' if last else '│ '} {line}" for line in below)


class Graph:
    """`GET /v1/topology`, asked for what hangs on what; `bindings` say which allocations go through an attachment."""

    def __init__(self, document: Document, bindings: Iterable[Document]) -> None:
        parts = ("fabrics", "switches", "ports", "vcs", "devices", "hosts")
        self._nodes: Mapping[str, Document] = {each["id"]: each for part in parts for each in document[part]}
        self._of_kind = {part: [each["id"] for each in document[part]] for part in parts}
        self._out: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._vcs_of_port: dict[str, str] = {}
        self._attached: dict[str, Document] = {}
        self._held: defaultdict[str, list[str]] = defaultdict(list)
        for each in bindings:
            self._held[each["attachment"]].append(f"{each['allocation']} ({formatting.size(each['size_bytes'])})")
        for edge in document["edges"]:
            if edge["kind"] == "attached":
                self._attached[edge["attachment"]] = edge
            elif edge["kind"] == "upstream":
                self._vcs_of_port[edge["target"]] = edge["source"]
            else:
                self._out[edge["source"], edge["kind"]].append(edge["target"])

    def trees(self, *, switch: str | None = None) -> Iterator[Branch]:
        """One for each fabric; with `switch` only what leads to that one."""
        owned: set[str] = set()
        for fabric_id in self._of_kind["fabrics"]:
            switches = self._out[fabric_id, "has_switch"]
            owned.update(switches)
            yield from self._fabric(fabric_text(self._nodes[fabric_id]), switches, switch)
        loose = [each for each in self._of_kind["switches"] if each not in owned]
        if loose:
            yield from self._fabric(LOOSE, loose, switch)
        if switch is None:
            yield from self._unplugged()

    def _fabric(self, text: str, switches: Sequence[str], wanted: str | None) -> Iterator[Branch]:
        shown = [each for each in switches if wanted in (None, self._nodes[each]["name"])]
        if shown or wanted is None:
            yield Branch(text=text, under=[self._switch(each) for each in shown])

    def _switch(self, switch_id: str) -> Branch:
        ports = self._out[switch_id, "has_port"]
        upstream = [each for each in ports if self._nodes[each]["role"] == "upstream"]
        others = [each for each in ports if each not in upstream]
        under = [self._host_port(each) for each in upstream] + [self._device_port(each) for each in others]
        return Branch(text=self._nodes[switch_id]["name"], under=under)

    def _host_port(self, port_id: str) -> Branch:
        port = self._nodes[port_id]
        hosts = ", ".join(self._nodes[each]["name"] for each in self._out[port_id, "plugged"]) or "no known host"
        vcs_id = self._vcs_of_port.get(port_id)
        text = f"port {port['number']}  {hosts}{link_text(port)}"
        if vcs_id is None:
            return Branch(text=text)
        vcs = self._nodes[vcs_id]
        free = sum(each["state"] == "free" and each["attachment"] is None for each in vcs["vppbs"])
        used = [each for each in vcs["vppbs"] if each["state"] != "free" or each["attachment"] is not None]
        text += f"  VCS {vcs['number']}: {free} of {len(vcs['vppbs'])} vPPBs free"
        return Branch(text=text, under=[Branch(text=self._vppb_text(each)) for each in used])

    def _vppb_text(self, vppb: Document) -> str:
        edge = self._attached.get(vppb["attachment"] or "")
        if edge is not None:
            device = self._nodes[edge["target"]]["name"]
            ld = "" if edge["ld_id"] is None else f" LD {edge['ld_id']}"
            return f"vPPB {vppb['number']}  {device}{ld}, {edge['state']}{self._holding(edge['attachment'])}"
        ld = "" if vppb["ld_id"] is None else f" LD {vppb['ld_id']}"
        return f"vPPB {vppb['number']}  {vppb['state']} port {vppb['port']}{ld}: of no allocation here"

    def _holding(self, attachment_id: str) -> str:
        held = self._held[attachment_id]
        more = f" and {len(held) - HELD_SHOWN} more" if len(held) > HELD_SHOWN else ""
        return f": {', '.join(held[:HELD_SHOWN])}{more}" if held else ""

    def _device_port(self, port_id: str) -> Branch:
        port = self._nodes[port_id]
        devices = [device_text(self._nodes[each]) for each in self._out[port_id, "plugged"]]
        what = ", ".join(devices) or f"{port['role']}, nothing known"
        return Branch(text=f"port {port['number']}  {what}{link_text(port)}")

    def _unplugged(self) -> Iterator[Branch]:
        plugged = {target for (_, kind), targets in self._out.items() if kind == "plugged" for target in targets}
        for part in ("hosts", "devices"):
            names = [self._nodes[each]["name"] for each in self._of_kind[part] if each not in plugged]
            if names:
                yield Branch(text=f"{part} on no known port", under=[Branch(text=name) for name in names])


def fabric_text(fabric: Document) -> str:
    admin = "" if fabric["admin_state"] == "active" else f", {fabric['admin_state']}"
    return f"{fabric['name']}  {fabric['state']}{admin}"


def link_text(port: Document) -> str:
    """Only a link that is narrower than it could be is worth a word."""
    width, most = port["link_width"], port["link_width_max"]
    return f"  link x{width} of x{most}" if 0 < width < most else ""


def device_text(device: Document) -> str:
    capacity_bytes = device["capacity_bytes"]
    used_bytes = capacity_bytes - device["free_bytes"]
    drawn = formatting.bar((("#", used_bytes),), capacity_bytes, width=DEVICE_BAR_WIDTH)
    fill = f"{formatting.rough_size(used_bytes)} of {formatting.rough_size(capacity_bytes)} in use"
    state = [each for each in (device["health"], device["admin_state"]) if each not in ("ok", "enabled")]
    return "  ".join([device["name"], device["pool"] or "no pool", drawn, fill, *state])
