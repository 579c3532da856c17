"""The command line against the real service."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import yaml

from tests.services import Service, environment_without_settings

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(service: Service) -> Run:
    def call(*arguments: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
        connection = {
            "FABRIC_MANAGER_SERVER": service.url,
            "FABRIC_MANAGER_DATA_DIR": str(service.data_dir),
        }
        done = subprocess.run(
            [sys.executable, "-m", "fabric_manager", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=environment_without_settings() | connection,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


def test_a_claim_from_the_command_line(run: Run) -> None:
    run(
        "allocate",
        "--key",
        "cli",
        "--tenant",
        "t",
        "--size",
        "64GiB",
        "--pool",
        "standard",
        "--host",
        "node-1",
        "--wait",
        "20",
    )
    shown = json.loads(run("get", "allocations", "cli", "-o", "json").stdout)
    assert (shown["phase"], shown["granted_bytes"]) == ("bound", 64 << 30)
    assert "64 GiB" in run("get", "allocations").stdout
    assert run("get", "allocations", "-o", "name").stdout.split() == ["cli"]
    assert yaml.safe_load(run("get", "devices", "dcd-0", "-o", "yaml").stdout)["allocated_bytes"] == 64 << 30
    for noun in ("pools", "hosts", "fabrics", "operations", "extents", "attachments", "logical-devices"):
        assert run("get", noun).stdout.strip()
    assert "allocation.bound" in run("timeline", "cli").stdout
    run("release", "cli", "--wait")
    assert "allocation.released" in run("events").stdout
    run("invariants")
    run("version")


def test_a_refusal_explains_itself_and_ends_in_its_exit_code(run: Run) -> None:
    refused = run(
        "allocate", "--key", "big", "--tenant", "t", "--size", "65GiB", "--pool", "high-performance", expect=1
    )
    for word in ("fragmentation", "funnel", "largest_fit_bytes"):
        assert word in refused.stderr
    run("get", "allocations", "nothing", expect=4)
    assert "write a whole number" in run("allocate", "--tenant", "t", "--size", "65GB", expect=2).stderr
