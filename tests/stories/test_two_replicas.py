"""Two services, one database and one rack that is neither's child: what docker-compose.yml arranges, as processes."""

import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fabric_manager.domain.units import GiB
from fabric_manager.southbound.simulator.wire import NotConnectedError, read_endpoint
from fabric_manager.store.schema import migrate_apart
from tests.external_postgres import ExternalPostgres
from tests.services import EXAMPLE, ROOT, Caller, Service, environment_without_settings

TOKEN = "fm_compose_0123456789abcdef0123456789abcdef"
WISH: dict[str, Any] = {"tenant": "analytics", "size_bytes": 64 * GiB, "pool": "high-performance"}
DEADLINE_S = 30.0


def once(good: Callable[[], Any], what: str) -> Any:
    ends = time.monotonic() + DEADLINE_S
    while True:
        if found := good():
            return found
        assert time.monotonic() < ends, f"not {what} after {DEADLINE_S} s"
        time.sleep(0.05)


@contextmanager
def a_rack(state_dir: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "fabric_manager", "simulate", "--state", str(state_dir), "--rack", str(EXAMPLE)]
    command += ["--listen", "0.0.0.0", "--announce", "localhost"]
    process = subprocess.Popen(command, env=environment_without_settings())

    def announced() -> bool:
        try:
            return read_endpoint(state_dir).address == "localhost"
        except NotConnectedError:
            return False

    try:
        once(announced, "announced")
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def a_replica(directory: Path, database_url: str, topology: Path) -> Service:
    """Its secrets come from files, as in a container."""
    parts = urlsplit(database_url)
    directory.mkdir()
    (directory / "admin.token").write_text(TOKEN + "\n")
    (directory / "password").write_text(unquote(parts.password or "") + "\n")
    return Service(
        directory,
        topology=topology,
        FABRIC_MANAGER_DATABASE_URL=f"postgresql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}",
        FABRIC_MANAGER_DATABASE_PASSWORD_FILE=str(directory / "password"),
        FABRIC_MANAGER_BOOTSTRAP_TOKEN_FILE=str(directory / "admin.token"),
        FABRIC_MANAGER_TENANTS_AUTO_CREATE="true",
        FABRIC_MANAGER_METRICS_ADDRESS="127.0.0.1:0",
    )


@pytest.fixture
async def replicas(tmp_path: Path, external_postgres: ExternalPostgres) -> AsyncIterator[tuple[Service, Service]]:
    await migrate_apart(external_postgres.url)
    topology = tmp_path / "topology.yaml"
    text = (ROOT / "deploy" / "topology.yaml").read_text()
    topology.write_text(text.replace("simulator:/rack", f"simulator:{tmp_path / 'rack'}"))
    one, other = (a_replica(tmp_path / name, external_postgres.url, topology) for name in ("one", "other"))
    with a_rack(tmp_path / "rack"):
        try:
            one.launch()
            other.launch()
            one.wait_ready()
            other.wait_ready()
            with one.caller() as caller:
                once(lambda: fabric(caller)["state"] == "up", "read")
            yield one, other
        finally:
            one.stop()
            other.stop()


def fabric(caller: Caller) -> Any:
    (found,) = caller.get("/fabrics")["items"]
    return found


def owns(service: Service) -> bool:
    """By the metrics on the address of its own, which ask for no token."""
    *_, url = re.findall(r'"url": "(http://127[^"]+/metrics)"', (service.data_dir / "service.log").read_text())
    families = text_string_to_metric_families(httpx.get(url).text)
    return any(s.value == 1 for f in families for s in f.samples if s.name == "fabric_manager_fabric_owned")


def test_claims_through_both_are_bound_by_the_one_that_owns_the_fabric(replicas: tuple[Service, Service]) -> None:
    assert sorted(owns(service) for service in replicas) == [False, True]
    with replicas[0].caller() as one, replicas[1].caller() as other:
        for number, caller in enumerate((one, other, one, other)):
            wish = WISH | {"host": f"node-{number}"}
            assert caller.put(f"claim-{number}", wish, wait_s=20)["phase"] == "bound"
        assert sorted(a["key"] for a in other.get("/allocations")["items"]) == [f"claim-{n}" for n in range(4)]
        one.delete("claim-1")
        assert other.reaches("claim-1", "released")
        assert one.violations() == other.violations() == []


def test_when_the_owner_is_killed_the_other_takes_over_and_nothing_is_lost(replicas: tuple[Service, Service]) -> None:
    owner, other = sorted(replicas, key=owns, reverse=True)
    with owner.caller() as caller:
        assert caller.put("before", WISH | {"host": "node-0"}, wait_s=20)["phase"] == "bound"
        asked = caller.put("between", WISH | {"host": "node-1"})
        assert asked["phase"] in ("binding", "bound")
    owner.kill()
    with other.caller() as caller:
        assert caller.put("after", WISH | {"host": "node-2"}, wait_s=30)["phase"] == "bound"
        assert caller.reaches("between", "bound")["generation"] >= asked["generation"]
        assert caller.get("/allocations/before")["phase"] == "bound"
        assert owns(other)
        for key in ("before", "between", "after"):
            caller.delete(key)
            caller.reaches(key, "released")
        assert caller.violations() == []
    owner.start()
    with owner.caller() as caller:
        assert caller.put("again", WISH | {"host": "node-3"}, wait_s=20)["phase"] == "bound"
    assert not owns(owner)
