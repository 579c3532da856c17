"""The fabric manager, seen from outside."""

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from random import Random
from types import TracebackType
from typing import Self

from fabric_manager.client import reading
from fabric_manager.client.allocations import Allocations
from fabric_manager.client.events import Events
from fabric_manager.client.inventory import Inventory
from fabric_manager.client.nouns import Noun, as_object, path_of
from fabric_manager.client.reading import read
from fabric_manager.client.transport import Call, Transport, json_of
from fabric_manager.client.values import Document, Invariants, Operation, Readiness

RETRY_S = 30.0


class FabricManager:
    """Use it as `async with FabricManager("http://127.0.0.1:8080", token) as manager`.

    `servers` are equal: the next one is asked when one does not answer. A call is repeated for at most `retry_s`.
    Calls raise ClientError: ProblemError for a refusal, UnreachableError when nobody answered.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        token: str | None = None,
        *,
        retry_s: float = RETRY_S,
        random: Random | None = None,
    ) -> None:
        addresses = [servers] if isinstance(servers, str) else servers
        self._transport = Transport(addresses, token, retry_s=retry_s, random=random or Random())  # noqa: S311  jitter
        self.allocations = Allocations(self._transport)
        self.events = Events(self._transport)
        self.inventory = Inventory(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    def noun(self, name: str) -> Noun:
        """Any of NOUNS, as documents."""
        return Noun(self._transport, name)

    async def operation(self, operation_id: str, *, wait_s: int = 0) -> Operation:
        """A durable goal; `wait_s` (at most 30) waits for its end."""
        query = {"wait": wait_s} if wait_s else {}
        return read(reading.operation, await self.noun("operations").get(operation_id, query=query, hold_s=wait_s))

    async def invariants(self) -> Invariants:
        return read(reading.invariants, await self._document("invariants"))

    async def version(self) -> Document:
        return await self._document("version")

    async def summary(self) -> Document:
        """Sums over everything: bytes by pool, bucket and phase, and counts."""
        return await self._document("summary")

    async def topology(self) -> Document:
        """The graph: fabrics, switches, ports, virtual switches, devices and hosts, and the edges between them."""
        return await self._document("topology")

    async def alarms(self) -> Document:
        """Conditions that want somebody's eyes now."""
        return await self._document("alarms")

    async def readiness(self) -> Readiness:
        """Asked once, of one server: not being ready is an answer. Raises UnreachableError."""
        response = await self._transport.send_once(Call(method="GET", path="/readyz"))
        date = response.headers.get("Date")
        at = read(parsedate_to_datetime, date) if date else None
        return Readiness(ready=response.is_success, document=as_object(json_of(response)), at=at)

    async def _document(self, name: str) -> Document:
        return as_object(json_of(await self._transport.send(Call(method="GET", path=path_of(name)))))
