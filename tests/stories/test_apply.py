"""The inventory as a file: exported, changed, applied, by the command line against the real service."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services import EXAMPLE, Caller, Service, environment_without_settings

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(service: Service) -> Run:
    def call(*arguments: str, expect: int = 0, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        connection = {"FABRIC_MANAGER_SERVER": service.url, "FABRIC_MANAGER_DATA_DIR": str(service.data_dir)}
        done = subprocess.run(
            [sys.executable, "-m", "fabric_manager", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            input=stdin,
            env=environment_without_settings() | connection,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


def declared(caller: Caller) -> dict[str, Any]:
    """Generations of what people declare, and the number of events about declarations."""
    nouns = ("pools", "hosts", "devices")
    found = {(noun, each["name"]): each["generation"] for noun in nouns for each in caller.get(f"/{noun}")["items"]}
    events = caller.get("/events?since=0&limit=1000")["items"]
    return {**found, "events": sum(event["type"].endswith(".declared") for event in events)}


def test_an_exported_inventory_is_a_no_op_and_a_changed_one_is_shown_and_done(
    run: Run, caller: Caller, tmp_path: Path
) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(run("export").stdout)
    before = declared(caller)
    assert "Everything is as the file says." in run("apply", "-f", str(file)).stdout
    assert "Everything is as the file says." in run("apply", "-f", "-", stdin=EXAMPLE.read_text()).stdout
    assert declared(caller) == before

    inventory = yaml.safe_load(file.read_text())
    inventory["devices"][0]["reserved_for"] = ["cluster:demo"]
    inventory["hosts"].append({"name": "node-8", "ports": [{"switch": "sw-0", "port": 40}], "labels": {}})
    file.write_text(yaml.safe_dump({"inventory": inventory}))
    shown = run("apply", "-f", str(file), "--dry-run").stdout
    header, change, create = (line.split() for line in shown.splitlines())
    assert header == ["ACTION", "WHAT", "FIELD", "HAVE", "WANT"]
    assert change == ["change", "device", "dcd-0", "reserved_for", "-", '["cluster:demo"]']
    assert create[:4] == ["create", "host", "node-8", "ports"]
    assert declared(caller) == before
    assert shown in (done := run("apply", "-f", str(file)).stdout)
    assert "Done: 1 created, 1 changed." in done
    assert caller.get("/devices/dcd-0")["reserved_for"] == ["cluster:demo"]
    assert yaml.safe_load(run("export").stdout) == inventory
    assert "Everything is as the file says." in run("apply", "-f", str(file)).stdout


def test_one_bad_thing_and_nothing_happened(run: Run, caller: Caller, tmp_path: Path) -> None:
    before = declared(caller)
    file = tmp_path / "bad.yaml"
    wish = {
        "pools": [{"name": "new", "kind": "mld"}],
        "hosts": [{"name": "h", "ports": [{"switch": "sw-0", "port": 0}]}],
    }
    file.write_text(yaml.safe_dump(wish))
    refused = run("apply", "-f", str(file), expect=1).stderr
    for word in ("validation_failed", "hosts.0.ports", "port 0 of sw-0 belongs to node-0"):
        assert word in refused
    assert declared(caller) == before
    run("apply", "-f", str(tmp_path / "nothing.yaml"), expect=2)
    assert "holds no inventory" in run("apply", "-f", "-", stdin="- a list", expect=2).stderr


def test_a_paused_fabric_is_sent_nothing_until_it_is_active_again(run: Run, caller: Caller) -> None:
    pause = {"driver": "simulator", "admin_state": "paused"}
    assert caller.ask("PUT", "/fabrics/rack-0", json=pause)["admin_state"] == "paused"
    caller.put("waits", {"tenant": "t", "size_bytes": 1 << 30, "pool": "standard", "host": "node-1"})
    operation = caller.get("/allocations/waits")["operation"]["id"]
    ends = time.monotonic() + 10
    while "paused" not in caller.get(f"/operations/{operation}?wait=1")["reason"]:
        assert time.monotonic() < ends
    sent = {entry["kind"] for entry in caller.get("/allocations/waits/timeline")["entries"]}
    assert sent == {"event"}
    caller.ask("PUT", "/fabrics/rack-0", json={**pause, "admin_state": "active"})
    caller.reaches("waits", "bound")


def test_a_retired_device_comes_back_with_all_it_has_when_it_is_declared_again(run: Run, caller: Caller) -> None:
    (known,) = [each for each in yaml.safe_load(run("export").stdout)["devices"] if each["name"] == "mld-3"]
    assert run("cordon", "mld-3").stdout == "mld-3: cordoned\n"
    before = caller.get("/devices/mld-3")
    caller.ask("DELETE", "/devices/mld-3", expect=204)
    run("cordon", "mld-3", expect=4)
    assert caller.ask("PUT", "/devices/mld-3", json=known, expect=201)["capacity_bytes"] == 0
    ends = time.monotonic() + 20
    while (after := caller.get("/devices/mld-3"))["health"] != "ok":
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert (after["free_bytes"], after["admin_state"]) == (before["free_bytes"], "enabled")
    assert caller.violations() == []
