"""Declaring what hardware cannot tell: one thing, or the whole inventory at once."""

from dataclasses import dataclass
from typing import Any

from fabric_manager.client.nouns import as_object, path_of
from fabric_manager.client.reading import read
from fabric_manager.client.transport import Call, Transport, json_of
from fabric_manager.client.values import Document

APPLY_S = 30  # the service may take that long over thousands of things


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    field: str
    have: Any
    want: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that was, or would be, brought to what was declared. `action` is create or change."""

    noun: str  # fabric, pool, device, host
    name: str
    action: str
    fields: tuple[FieldChange, ...]


class Inventory:
    """Every verb may be repeated: what is so already is not written again."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def export(self) -> Document:
        """All that people declared, as `apply` takes it."""
        return as_object(json_of(await self._transport.send(Call(method="GET", path=path_of("inventory")))))

    async def apply(self, inventory: Document, *, dry_run: bool = False) -> tuple[Change, ...]:
        """Bring everything to what `inventory` says, all or nothing; with `dry_run` only say what that would change.

        What it does not name is left alone. Raises ProblemError; then nothing has changed.
        """
        call = Call(
            method="PUT",
            path=path_of("inventory"),
            query={"dry_run": "true"} if dry_run else {},
            body=inventory,
            hold_s=APPLY_S,
        )
        return read(changes, json_of(await self._transport.send(call)))

    async def put(self, noun: str, name: str, facts: Document, *, etag: str | None = None) -> Document:
        """Declare one thing of hosts, pools, fabrics or devices. `etag`: only if it still is that version."""
        return as_object(json_of(await self._change("PUT", path_of(noun, name), facts, etag)))

    async def delete(self, noun: str, name: str, *, etag: str | None = None) -> None:
        """Delete it; a device is retired. Raises ProblemError `illegal_phase` with `used_by` while it is in use."""
        await self._change("DELETE", path_of(noun, name), None, etag)

    async def cordon(self, device: str) -> Document:
        """The device keeps what it has and gets nothing new."""
        return as_object(json_of(await self._change("POST", path_of("devices", device, "cordon"), None, None)))

    async def uncordon(self, device: str) -> Document:
        return as_object(json_of(await self._change("POST", path_of("devices", device, "uncordon"), None, None)))

    async def _change(self, method: str, path: str, body: Document | None, etag: str | None) -> Any:
        headers = {"If-Match": etag} if etag else {}
        return await self._transport.send(Call(method=method, path=path, body=body, headers=headers))


def changes(document: Any) -> tuple[Change, ...]:
    return tuple(
        Change(
            noun=each["noun"],
            name=each["name"],
            action=each["action"],
            fields=tuple(FieldChange(field=f["field"], have=f["have"], want=f["want"]) for f in each["fields"]),
        )
        for each in document["diff"]
    )
