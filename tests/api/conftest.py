"""The API over real HTTP and PostgreSQL, with a discovered fabric and no hardware: tests move phases themselves."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import pytest
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI

from fabric_manager.api.application import Readiness, ReadyCheck, build
from fabric_manager.domain.actor import Principal, Role
from fabric_manager.domain.errors import FabricError
from fabric_manager.store import tokens, work
from fabric_manager.store.database import Database, Timeouts
from fabric_manager.store.work import Owned
from tests.racks import a_fabric

ADMIN_TOKEN = "fm_admin_0123456789abcdef0123456789abcdef"


@dataclass(kw_only=True)
class Api:
    """A client with the admin's token, and what stands behind the server."""

    db: Database
    app: FastAPI
    url: str
    owned: Owned
    http: httpx.AsyncClient
    identities: Callable[[], UUID]
    woken: int = 0
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def wake(self) -> None:
        """Numbers the events, as the service's own sequencer would."""
        self.woken += 1
        task = asyncio.create_task(self.sequence())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def sequence(self) -> None:
        with contextlib.suppress(FabricError):  # the database may be gone: then so are the events
            await work.sequence_events(self.db, batch_max=1000)

    async def token(self, role: Role, **bounds: str) -> dict[str, str]:
        """The header of a new token."""
        token_id = self.identities()
        token = f"fm_{token_id}_{token_id.hex}"
        owner = Principal(name=f"a {role}", role=role, **bounds)
        async with self.db.transaction() as tx:
            await tokens.insert(tx, token_id=token_id, hashed=tokens.digest(token), owner=owner)
        return {"Authorization": f"Bearer {token}"}

    async def put(self, key: str, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        body = {"tenant": "analytics", "size_bytes": 64 << 30} | fields
        return await self.http.put(f"/v1/allocations/{key}", json=body, headers=headers)

    async def settle(self, key: str, seen: str, occurs: str, **more: Any) -> None:
        """What the reconciler would write after reading hardware."""
        allocation = (await self.http.get(f"/v1/allocations/{key}")).json()
        (segment,) = allocation["segments"]
        arg = {"segment_id": segment["id"], "from": seen, "event": occurs, "ctx": {"actor": "test"}, **more}
        answer = await self.db.call("settle", {**self.owned.guard, **arg})
        assert answer["outcome"] == "settled", answer
        self.wake()

    async def bound(self, key: str, **fields: Any) -> dict[str, Any]:
        """A bound allocation."""
        assert (await self.put(key, host="node-0", **fields)).status_code == 201
        await self.settle(key, "binding", "bind-read-back")
        return dict((await self.http.get(f"/v1/allocations/{key}")).json())

    async def erased(self, key: str) -> None:
        """Takes a releasing one through sanitizing to released."""
        await self.settle(key, "releasing", "gone")
        evidence = sa.text(
            """INSERT INTO evidence (id, segment_id, device_no, device_serial, method, size_bytes, started_at, ended_at,
                                      read_back)
               SELECT :id, s.id, d.number, d.serial, 'completion', s.size_bytes, now(), now(), '{}'
               FROM segment s JOIN device d ON d.number = s.device_no JOIN allocation a ON a.id = s.allocation_id
               WHERE a.key = :key"""
        )
        async with self.db.transaction() as tx:
            await tx.execute(evidence, {"id": self.identities(), "key": key})
        await self.settle(key, "sanitizing", "sanitized-release")

    async def sees(self, key: str, phase: str) -> None:
        """Returns once the allocation is there in this phase."""
        async with asyncio.timeout(10):
            while await self.phase(key) != phase:  # noqa: ASYNC110 (the server tells nobody here)
                await asyncio.sleep(0.02)

    async def phase(self, key: str) -> str | None:
        phase: str | None = (await self.http.get(f"/v1/allocations/{key}")).json().get("phase")
        return phase


class Server(uvicorn.Server):
    """Leaves the signals to the test runner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio forgets it, and each answer waits 40 ms
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(10):
            while not server.started:  # noqa: ASYNC110 (uvicorn sets a flag and no event)
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


@asynccontextmanager
async def an_api(db: Database, identities: Callable[[], UUID], owned: Owned) -> AsyncIterator[Api]:
    async def ready() -> Readiness:
        return Readiness(ready=True, checks=(ReadyCheck(name="database", ok=True, detail="answers"),))

    api: Api

    def wake() -> None:
        api.wake()

    app = build(
        db=db,
        identities=identities,
        wake=wake,
        tenants_auto_create=True,
        ready=ready,
        version="0.0.0-test",
    )
    async with db.transaction() as tx:
        owner = Principal(name="admin", role=Role.ADMIN)
        await tokens.insert(tx, token_id=identities(), hashed=tokens.digest(ADMIN_TOKEN), owner=owner)
    async with (
        serving(app) as url,
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}, timeout=40) as http,
    ):
        api = Api(db=db, app=app, url=url, owned=owned, http=http, identities=identities)
        await api.sequence()
        yield api
        await asyncio.gather(*api.tasks, return_exceptions=True)


@pytest.fixture
async def api(database_url: str, identities: Callable[[], UUID]) -> AsyncIterator[Api]:
    """One MLD of four LDs, one dynamic-capacity device, two hosts."""
    db = Database(database_url, timeouts=Timeouts())
    owned = await a_fabric(db, identities, mlds=1, dcds=1)
    async with an_api(db, identities, owned) as ready:
        yield ready
    await db.close()
