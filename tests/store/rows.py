"""Single rows with safe defaults, written past every verb. What a row refers to is made when it is not given."""

from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.units import GiB, MiB, TiB
from fabric_manager.store import tables

Row = Any
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY = sa.null()  # where a row is otherwise made to refer to


class Rows:
    """Factories over one open transaction; a test names only what it is about."""

    def __init__(self, tx: AsyncConnection) -> None:
        self.tx = tx
        self._numbers = count(1)

    def name(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    async def insert(self, table: sa.Table, **values: Any) -> Row:
        return (await self.tx.execute(sa.insert(table).values(**values).returning(*table.columns))).one()

    async def update(self, table: sa.Table, row: Row, **values: Any) -> None:
        await self.tx.execute(sa.update(table).where(table.c.id == row.id).values(**values))

    async def fabric(self, **f: Any) -> Row:
        defaults = {"id": uuid4(), "name": self.name("fabric"), "driver": "simulator", "endpoint": "none"}
        return await self.insert(tables.fabric, **defaults | f)

    async def pool(self, **f: Any) -> Row:
        return await self.insert(tables.pool, **{"id": uuid4(), "name": self.name("pool"), "kind": "mld"} | f)

    async def switch(self, **f: Any) -> Row:
        if "fabric_id" not in f:
            f["fabric_id"] = (await self.fabric()).id
        name = self.name("switch")
        return await self.insert(tables.switch, **{"id": uuid4(), "name": name, "serial": name, "hdm_decoders": 8} | f)

    async def port(self, **f: Any) -> Row:
        f["switch_id"] = f.get("switch_id") or (await self.switch()).id
        return await self.insert(tables.port, **{"id": uuid4(), "number": 1, "role": "upstream"} | f)

    async def vcs(self, **f: Any) -> Row:
        f["switch_id"] = f.get("switch_id") or (await self.switch()).id
        return await self.insert(tables.vcs, **{"id": uuid4(), "number": 1, "upstream_port": 1} | f)

    async def vppb(self, **f: Any) -> Row:
        if "switch_id" not in f:
            vcs = await self.vcs()
            f |= {"switch_id": vcs.switch_id, "vcs_number": vcs.number}
        return await self.insert(tables.vppb, **{"number": 0, "state": "free"} | f)

    async def device(self, **f: Any) -> Row:
        if "fabric_id" not in f:
            f["fabric_id"] = (await self.fabric()).id
        name = self.name("device")
        defaults = {
            "id": uuid4(),
            "name": name,
            "serial": name,
            "kind": "mld",
            "capacity_bytes": TiB,
            "free_bytes": TiB,
            "free_lds": 0xFFFF,
            "lds_max": 16,
        }
        return await self.insert(tables.device, **defaults | f)

    async def ld(self, **f: Any) -> Row:
        f["device_no"] = f.get("device_no") or (await self.device()).number
        return await self.insert(tables.logical_device, **{"id": uuid4(), "ld_id": 0, "size_bytes": 64 * GiB} | f)

    async def host(self, **f: Any) -> Row:
        return await self.insert(tables.host, **{"id": uuid4(), "name": self.name("host")} | f)

    async def tenant(self, **f: Any) -> Row:
        return await self.insert(tables.tenant, **{"id": uuid4(), "name": self.name("tenant")} | f)

    async def qos_class(self, **f: Any) -> Row:
        return await self.insert(tables.qos_class, **{"id": uuid4(), "name": self.name("qos")} | f)

    async def isolation_policy(self, **f: Any) -> Row:
        defaults = {"id": uuid4(), "name": self.name("isolation"), "sharing": "shared-device", "sanitize": "always"}
        return await self.insert(tables.isolation_policy, **defaults | f)

    async def key(self, **f: Any) -> Row:
        return await self.insert(tables.allocation_key, **{"key": self.name("key")} | f)

    async def allocation(self, **f: Any) -> Row:
        f["tenant_id"] = f.get("tenant_id") or (await self.tenant()).id
        f["key"] = f.get("key") or (await self.key()).key
        defaults = {
            "id": uuid4(),
            "request": {},
            "size_bytes": GiB,
            "granted_bytes": GiB,
            "qos_class": "standard",
            "isolation": "shared",
            "phase": "reserved",
        }
        return await self.insert(tables.allocation, **defaults | f)

    async def attachment(self, **f: Any) -> Row:
        if "host_id" not in f:
            f["host_id"] = (await self.host()).id
        f["device_no"] = f.get("device_no") or (await self.device()).number
        if "switch_id" not in f:
            vppb = await self.vppb()
            f |= {"switch_id": vppb.switch_id, "vcs_number": vppb.vcs_number, "vppb_number": vppb.number}
        return await self.insert(tables.attachment, **{"id": uuid4(), "kind": "mld", "ld_id": 0, "port_number": 1} | f)

    async def segment(self, **f: Any) -> Row:
        """Without an LD and without spans: a DCD's before it is bound."""
        f["allocation_id"] = f.get("allocation_id") or (await self.allocation()).id
        f["device_no"] = f.get("device_no") or (await self.device()).number
        return await self.insert(tables.segment, **{"id": uuid4(), "size_bytes": GiB, "phase": "reserved"} | f)

    async def bound_segment(self, **f: Any) -> Row:
        device_no = f.get("device_no") or (await self.device()).number
        attachment = await self.attachment(device_no=device_no, kind="dcd")
        defaults = {"device_no": device_no, "attachment_id": attachment.id, "verified_at": NOW, "phase": "bound"}
        return await self.segment(**defaults | f)

    async def extent(self, **f: Any) -> Row:
        segment = f.pop("segment", None) or await self.segment(dpa_space=0)
        span = f.pop("span", (0, GiB))
        defaults = {
            "segment_id": segment.id,
            "number": 0,
            "device_no": segment.device_no,
            "dpa_space": segment.dpa_space,
            "block_bytes": 2 * MiB,
            "span": sa.text(f"'{span}'::int8range") if isinstance(span, str) else sa.func.int8range(*span),
        }
        return await self.insert(tables.extent, **defaults | f)

    async def operation(self, **f: Any) -> Row:
        if "fabric_id" not in f:
            f["fabric_id"] = (await self.fabric()).id
        return await self.insert(tables.operation, **{"id": uuid4(), "goal": "bind", "actor": "test"} | f)

    async def step(self, **f: Any) -> Row:
        f["operation_id"] = f.get("operation_id") or (await self.operation()).id
        defaults = {"number": 1, "step": "bind", "component": "sw-0", "intent": {}, "epoch": 1, "intended_at": NOW}
        return await self.insert(tables.operation_step, **defaults | f)

    async def evidence(self, **f: Any) -> Row:
        segment = f.pop("segment", None) or await self.segment()
        defaults = {
            "id": uuid4(),
            "segment_id": segment.id,
            "device_no": segment.device_no,
            "device_serial": "serial",
            "method": "completion",
            "size_bytes": GiB,
            "started_at": NOW,
            "ended_at": NOW,
            "read_back": {},
        }
        return await self.insert(tables.evidence, **defaults | f)

    async def event(self, **f: Any) -> Row:
        defaults = {"seq": 1, "at": NOW, "type": "t", "object_kind": "k", "object_id": "o", "actor": "test"}
        return await self.insert(tables.event, **defaults | f)

    async def api_token(self, **f: Any) -> Row:
        defaults = {"id": uuid4(), "name": "t", "hash": uuid4().bytes * 2, "role": "viewer"}
        return await self.insert(tables.api_token, **defaults | f)

    async def event_head(self, **f: Any) -> Row:
        return await self.insert(tables.event_head, **{"seq": 0} | f)
