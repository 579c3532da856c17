"""Reading any noun: one by its name, or all that match."""

from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

from fabric_manager.client.errors import UnexpectedAnswerError
from fabric_manager.client.transport import Call, QueryValue, Transport, json_of
from fabric_manager.client.values import Document

PAGE_ITEMS = 1000

NOUNS = (
    "allocations",
    "devices",
    "logical-devices",
    "extents",
    "attachments",
    "hosts",
    "pools",
    "fabrics",
    "switches",
    "ports",
    "vcs",
    "bindings",
    "operations",
)


class Noun:
    """One kind of object, as documents: inventory is shown, not decided upon, by who is outside the service."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name

    async def get(self, name: str, *, query: Mapping[str, QueryValue] | None = None, hold_s: int = 0) -> Document:
        call = Call(method="GET", path=path_of(self._name, name), query=query or {}, hold_s=hold_s)
        return as_object(json_of(await self._transport.send(call)))

    async def list(self, filters: Mapping[str, QueryValue] | None = None) -> list[Document]:
        return [each async for each in self.iterate(filters)]

    async def iterate(self, filters: Mapping[str, QueryValue] | None = None) -> AsyncIterator[Document]:
        """All that match, page by page. The pages are not one snapshot."""
        cursor: str | None = None
        while True:
            query = {**(filters or {}), "limit": PAGE_ITEMS, "cursor": cursor}
            page = json_of(await self._transport.send(Call(method="GET", path=path_of(self._name), query=query)))
            for item in as_object(page).get("items", ()):
                yield as_object(item)
            cursor = page.get("next_cursor")
            if cursor is None:
                return


def path_of(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe=":~") for part in parts)


def as_object(value: object) -> Document:
    if not isinstance(value, dict):
        raise UnexpectedAnswerError(f"the answer holds a {type(value).__name__} where an object belongs")
    return value
