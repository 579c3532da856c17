"""What operators read on the command line, against the real service."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from fabric_manager.cli import COMMANDS, generation, main
from fabric_manager.southbound.simulator.topology import parse_hardware
from tests.services import Caller, Service, environment_without_settings

GIB = 1 << 30


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """The commands in this process, with the environment of somebody beside the service."""

    def __init__(self, service: Service) -> None:
        self.environment = {"FABRIC_MANAGER_SERVER": service.url, "FABRIC_MANAGER_DATA_DIR": str(service.data_dir)}

    def __call__(self, line: str, *, expect: int = 0) -> Said:
        result = CliRunner().invoke(main, line.split(), env=self.environment, prog_name="fabric-manager")
        assert result.exit_code == expect, f"{line}: {result.exit_code} {result.output} {result.exception!r}"
        return Said(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def shell(service: Service) -> Shell:
    return Shell(service)


def the_row(text: str, *words: str) -> str:
    """The one line with all of `words`."""
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(found) == 1, f"{words} in {text}"
    return found[0]


def test_an_operator_sees_who_holds_what_and_what_happened(shell: Shell, caller: Caller) -> None:
    caller.put(
        "read:1", {"tenant": "t", "size_bytes": 64 * GIB, "pool": "high-performance", "host": "node-3"}, wait_s=20
    )
    bound = caller.put(
        "read:2", {"tenant": "t", "size_bytes": 8 * GIB, "pool": "standard", "host": "node-1"}, wait_s=20
    )
    caller.report(bound, "online")

    told = shell("describe allocations read:2").out
    assert re.search(r"Phase: +online", told)
    assert re.search(r"Place: +extents of dcd-\d \[0 B, \+8 GiB\)", told)
    assert re.search(r"Binding: +sw-0 VCS 1 vPPB 0", told)
    assert re.search(r"Online +True +\d+s", told)
    assert told.index("Events:") < told.index("allocation.bound")
    device = bound["segments"][0]["device"]
    told = shell(f"describe devices {device}").out
    assert "8 GiB" in the_row(told, "allocated", "%")
    assert "online" in the_row(told, "read:2", "standard")
    assert told.rstrip().splitlines()[-1].endswith("admin")  # ends in the latest event
    assert "read:1" in shell("describe hosts node-3").out
    for line in ("pools standard", "fabrics rack-0", "switches sw-0", "vcs sw-0:1", "ports sw-0:1"):
        assert shell(f"describe {line}").out
    assert shell("describe devices nothing", expect=4).err

    tree = shell("topology").out.splitlines()
    assert tree[0].startswith("rack-0  up")
    vppb = tree.index(next(line for line in tree if "read:1 (64 GiB)" in line))
    assert "mld-0 LD 0, bound" in tree[vppb]
    assert "node-3  VCS 3: 3 of 4 vPPBs free" in tree[vppb - 1]
    assert "[#" in the_row("\n".join(tree), device, "8 GiB of 2 TiB in use")
    assert len(json.loads(shell("topology show -o json").out)["devices"]) == 6
    shell("topology --switch sw-9", expect=4)

    glance = shell("top").out
    assert "64 GiB" in the_row(glance, "high-performance")
    assert "72 GiB" in the_row(glance, "total")
    assert "1 bound, 1 online" in glance
    assert "sw-0:3/0" in the_row(shell("get allocations -o wide").out, "read:1")
    for noun in ("switches", "ports", "vcs", "bindings", "devices", "hosts", "operations"):
        assert len(shell(f"get {noun} -o wide").out.splitlines()) > 1
        assert shell(f"get {noun} -o name").out


def test_a_request_is_explained_before_it_is_made(shell: Shell) -> None:
    fits = shell("explain --key unused --tenant t --size 64GiB --host node-1").out
    assert "64 GiB for t on node-1 would go to mld-0, the first of 6" in fits
    assert "latency" in the_row(fits, "mld-0", "1 TiB")
    refused = shell("explain --tenant t --size 65GiB --pool high-performance --host node-1", expect=1).out
    assert "would be refused: fragmentation" in refused
    assert "-4" in the_row(refused, "with room for it")
    assert "Ask for 64 GiB or less" in refused
    assert "Leave out --pool" in refused
    assert "get devices" in shell("explain --tenant t --size 8GiB --pool nowhere", expect=1).out
    document = json.loads(shell("explain --tenant t --size 65GiB --pool standard -o json").out)
    assert [each["device"] for each in document["candidates"]] == ["dcd-0", "dcd-1"]
    assert shell("get allocations -o name").out == ""  # nothing was written


def test_the_doctor_says_what_is_wrong_and_what_to_do(shell: Shell, service: Service, caller: Caller) -> None:
    service.data_dir.chmod(0o700)  # as `serve` makes it where there is none
    well = shell("doctor").out
    assert {line.split()[0] for line in well.splitlines()} == {"ok"}, well
    for about in ("data directory", "service", "clock", "ready", "token", "version", "fabrics", "invariants", "alarms"):
        assert f"ok    {about}" in well
    assert shell("alarms").out == "No alarm is open.\n"

    (service.data_dir / "admin.token").chmod(0o644)
    caller.ask("PUT", "/fabrics/rack-0", json={"driver": "simulator", "admin_state": "paused"})
    ill = shell("doctor", expect=1).out
    assert "0644" in the_row(ill, "fail  data directory")
    assert "chmod go= " in ill
    assert "paused" in the_row(ill, "warn  fabrics")
    shell.environment["FABRIC_MANAGER_TOKEN"] = "fm_nobody_" + "x" * 32
    assert "unauthenticated" in the_row(shell("doctor", expect=1).out, "fail  token")
    nobody = shell("doctor --server http://127.0.0.1:1", expect=1).out
    assert "no answer" in the_row(nobody, "fail  service")
    assert "fabric-manager serve" in nobody


def test_a_watch_prints_what_changes(shell: Shell, caller: Caller) -> None:
    caller.put("watched", {"tenant": "t", "size_bytes": 8 * GIB, "pool": "standard"})
    with lines_of(shell, "get", "allocations", "--watch", "-o", "json") as lines:
        assert json.loads(next(lines))["phase"] == "reserved"
        caller.delete("watched")
        assert json.loads(next(lines))["phase"] == "released"


def test_who_waits_at_a_terminal_is_told_how_far_it_is(shell: Shell, caller: Caller) -> None:
    caller.put("slow", {"tenant": "t", "size_bytes": 256 * GIB, "pool": "standard", "host": "node-1"}, wait_s=20)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "fabric_manager", "release", "slow", "--wait"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        timeout=60,
        env=environment_without_settings() | shell.environment,
    )
    os.close(theirs)
    told = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.stdout == b"slow: released\n"
    assert re.search(r"slow is (releasing|sanitizing).*: \w+", told)
    assert told.endswith("\r\x1b[K")  # nothing of it stays


class lines_of:  # noqa: N801  reads as a sentence
    """What a command prints, as it comes; it is ended afterwards, and after a minute in any case."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fabric_manager", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment_without_settings() | shell.environment,
        )
        self.end = threading.Timer(60, self.process.kill)

    def __enter__(self) -> Iterator[str]:
        self.end.start()
        assert self.process.stdout is not None
        return iter(self.process.stdout)

    def __exit__(self, *_: object) -> None:
        self.end.cancel()
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize(
    ("devices", "hosts", "options"),
    [
        (1, 1, []),
        (100, 20, []),
        (7, 2, ["--switches", "5"]),
        (240, 8, ["--switches", "1", "--kind", "dcd"]),
        (40, 200, ["--kind", "mld"]),
    ],
)
def test_a_generated_rack_can_be_built(tmp_path: Path, devices: int, hosts: int, options: Sequence[str]) -> None:
    file = tmp_path / "rack.yaml"
    line = ["topology", "generate", "--devices", str(devices), "--hosts", str(hosts), "-f", str(file), *options]
    assert CliRunner().invoke(main, line).exit_code == 0
    document = yaml.safe_load(file.read_text())
    plan = parse_hardware(document["hardware"])
    assert (len(plan.devices), len(plan.hosts)) == (devices, hosts)
    declared = document["inventory"]
    assert {each.serial for each in plan.devices} == {each["serial"] for each in declared["devices"]}
    assert {each["pool"] for each in declared["devices"]} <= {each["name"] for each in declared["pools"]}
    assert {each.name for each in plan.hosts} == {each["name"] for each in declared["hosts"]}


def test_a_generated_rack_is_served(tmp_path: Path) -> None:
    scale = generation.Scale(devices=12, hosts=4, switches=2, kind="mixed")
    file = tmp_path / "rack.yaml"
    file.write_text(generation.topology_text(scale))
    service = Service(tmp_path / "data", topology=file)
    service.start()
    try:
        shell = Shell(service)
        assert shell("allocate --tenant t --size 8GiB --pool standard --host node-1 --wait 20").out
        assert len(shell("get devices -o name").out.split()) == 12
        assert "fail" not in shell("doctor").out
    finally:
        service.stop()


def test_more_than_a_switch_has_ports_for_is_refused() -> None:
    line = "topology generate --devices 300 --hosts 2 --switches 1"
    assert CliRunner().invoke(main, line.split()).exit_code == 2


def test_every_shell_completes_nouns() -> None:
    for shell_name in ("bash", "zsh", "fish"):
        assert "_FABRIC_MANAGER_COMPLETE" in CliRunner().invoke(main, ["completion", shell_name]).stdout
    words = {
        "_FABRIC_MANAGER_COMPLETE": "bash_complete",
        "COMP_WORDS": "fabric-manager describe dev",
        "COMP_CWORD": "2",
    }
    result = CliRunner().invoke(main, [], env=words, prog_name="fabric-manager")
    assert "devices" in result.stdout


def test_the_page_has_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert [each.name for each in COMMANDS if f"| `{each.name}` |" not in page] == []
