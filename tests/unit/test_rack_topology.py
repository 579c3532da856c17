"""The rack file: what is written is what is built, and what cannot be built is refused with its reason."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_manager.domain.units import GiB, TiB
from fabric_manager.southbound.simulator.rack import Rack
from fabric_manager.southbound.simulator.topology import RackFileError, parse_hardware, read_rack_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "rack.yaml"


def hardware(**device: Any) -> dict[str, Any]:
    mld = {"name": "m", "serial": "M", "kind": "mld", "port": "s/4", "capacity": "2 GiB", "lds": "2 x 1 GiB"}
    return {
        "switches": [{"name": "s", "serial": "S", "upstream": "0-1", "vppbs": 2}],
        "devices": [{**mld, **device}],
        "hosts": [{"name": "h", "ports": ["s/0"]}],
    }


def test_the_example_is_the_rack_that_the_demo_speaks_of() -> None:
    plan = read_rack_file(EXAMPLE)
    assert [len(switch.upstream) for switch in plan.switches] == [8]
    assert [device.ld_sizes_bytes for device in plan.devices if device.kind == "mld"] == [(64 * GiB,) * 16] * 4
    assert [device.capacity_bytes for device in plan.devices if device.kind == "dcd"] == [2 * TiB] * 2
    assert all(region.sanitize_on_release for device in plan.devices for region in device.regions)
    Rack(plan, seed=0)


def test_hardware_and_inventory_of_the_example_name_the_same_things() -> None:
    document, plan = yaml.safe_load(EXAMPLE.read_text()), read_rack_file(EXAMPLE)
    inventory = document["inventory"]
    assert [(d["name"], d["serial"]) for d in inventory["devices"]] == [(d.name, d.serial) for d in plan.devices]
    assert [(h["name"], [(p["switch"], p["port"]) for p in h["ports"]]) for h in inventory["hosts"]] == [
        (host.name, list(host.ports)) for host in plan.hosts
    ]


def test_lds_may_differ_in_size() -> None:
    plan = parse_hardware(hardware(lds="1 x 1 GiB, 2 x 512 MiB"))
    assert plan.devices[0].ld_sizes_bytes == (GiB, GiB // 2, GiB // 2)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ({"kind": "ssd"}, "know sld, mld, dcd"),
        ({"granule": "128 MiB"}, "granule"),
        ({"lds": "3 x 1 GiB"}, "do not fit"),
        ({"lds": "2 x 100 MiB"}, "no whole granules"),
        ({"lds": "17 x 64 MiB"}, "1 to 16"),
        ({"port": "s/0"}, "one port"),
        ({"port": "t/4"}, "unknown switch"),
        ({"serial": "S"}, "used twice"),
        ({"serial": "a:b"}, "cannot be a name"),
        ({"link": "wide"}, "write it like"),
        ({"sanitize_bytes_per_s": 0}, "above zero"),
        ({"capacity": "2 GB"}, "IEC|write a whole number"),
    ],
)
def test_a_rack_that_cannot_be_is_refused(device: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_hardware(hardware(**device))


@pytest.mark.parametrize("text", ["", "hardware:", "hardware: {switches: []}", "a: [", "[]"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(text)
    with pytest.raises(RackFileError, match=r"rack\.yaml"):
        read_rack_file(path)
