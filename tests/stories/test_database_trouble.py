"""The database stands still, is cut off, or dies. Callers are told within five seconds; nobody restarts the service."""

import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fabric_manager.domain.units import GiB
from fabric_manager.store.schema import migrate_apart
from tests.external_postgres import ExternalPostgres
from tests.proxy import Proxy, a_proxy
from tests.services import Caller, Service

WISH: dict[str, Any] = {"tenant": "analytics", "size_bytes": 64 * GiB}
TOLD_S_MAX = 5.0
RECOVERED_S_MAX = 30.0


class Trouble:
    """A service, its external database, and the network between them."""

    def __init__(self, service: Service, postgres: ExternalPostgres, proxy: Proxy) -> None:
        self.service = service
        self.postgres = postgres
        self.proxy = proxy

    def caller(self) -> Caller:
        token = (self.service.data_dir / "bootstrap.token").read_text().strip()
        http = httpx.Client(base_url=f"{self.service.url}/v1", headers={"Authorization": f"Bearer {token}"}, timeout=15)
        return Caller(http)

    def expect_told(self) -> None:
        """Every kind of request is refused in time with a problem; liveness stays, readiness says why."""
        caller = self.caller()
        attempts: list[tuple[str, str, Any]] = [
            ("PUT", "/allocations/in-trouble", WISH),
            ("GET", "/allocations/before", None),
            ("GET", "/devices", None),
            ("DELETE", "/allocations/in-trouble-too", None),
        ]
        for method, path, body in attempts:
            begun = time.monotonic()
            answer = caller.http.request(method, path, json=body)
            assert time.monotonic() - begun < TOLD_S_MAX, f"{method} {path} took too long"
            assert answer.status_code == 503, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] == "database_unavailable"
            assert int(answer.headers["retry-after"]) >= 1
        begun = time.monotonic()
        ready = httpx.get(f"{self.service.url}/readyz", timeout=15)
        assert time.monotonic() - begun < TOLD_S_MAX
        assert ready.status_code == 503
        assert "database" in ready.text
        assert httpx.get(f"{self.service.url}/healthz", timeout=5).status_code == 200

    def expect_recovered(self) -> None:
        ends = time.monotonic() + RECOVERED_S_MAX
        while httpx.get(f"{self.service.url}/readyz", timeout=15).status_code != 200:
            assert time.monotonic() < ends, self.service.log_tail()
        caller = self.caller()
        caller.put("in-trouble", WISH | {"host": "node-1"})
        caller.reaches("in-trouble", "bound")
        assert caller.get("/allocations/before")["phase"] == "bound"
        assert caller.violations() == []


@pytest.fixture
async def trouble(external_postgres: ExternalPostgres, tmp_path: Path) -> AsyncIterator[Trouble]:
    await migrate_apart(external_postgres.url)
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    token_file = data_dir / "bootstrap.token"
    token_file.write_text(f"fm_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}")
    with a_proxy("127.0.0.1", external_postgres.port) as proxy:
        service = Service(
            data_dir,
            FABRIC_MANAGER_DATABASE_URL=external_postgres.url_through(proxy.port),
            FABRIC_MANAGER_BOOTSTRAP_TOKEN_FILE=str(token_file),
            FABRIC_MANAGER_TENANTS_AUTO_CREATE="true",
        )
        service.start()
        ready = Trouble(service, external_postgres, proxy)
        ready.caller().put("before", WISH | {"host": "node-0"}, wait_s=20)
        yield ready
        service.stop()


def test_a_paused_database_is_told_in_time_and_recovered_from(trouble: Trouble) -> None:
    trouble.postgres.pause()
    try:
        trouble.expect_told()
    finally:
        trouble.postgres.resume()
    trouble.expect_recovered()


def test_a_silent_network_is_told_in_time_and_recovered_from(trouble: Trouble) -> None:
    trouble.proxy.go_silent()
    trouble.expect_told()
    trouble.proxy.heal()
    trouble.expect_recovered()


def test_a_cut_network_is_told_in_time_and_recovered_from(trouble: Trouble) -> None:
    trouble.proxy.cut()
    trouble.expect_told()
    trouble.proxy.heal()
    trouble.expect_recovered()


async def test_a_killed_database_is_told_in_time_and_recovered_from(trouble: Trouble) -> None:
    await trouble.postgres.kill()
    trouble.expect_told()
    await trouble.postgres.start()
    trouble.expect_recovered()
