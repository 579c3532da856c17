"""Whose token a caller shows. Known tokens are remembered for a few seconds, so a revoked one lives on no longer."""

import asyncio
from collections import OrderedDict

from fabric_manager.api.sharing import SharedReads
from fabric_manager.domain.actor import Principal
from fabric_manager.store import tokens
from fabric_manager.store.database import Database

KEPT_S = 5.0
KEPT_MAX = 1024


class TokenCache:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._reads = SharedReads()
        self._kept: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    async def owner(self, token: str) -> Principal | None:
        """None: nobody's. Raises FabricError when the database cannot say."""
        hashed = tokens.digest(token)
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(hashed)
        if kept is not None and kept[1] > now:
            return kept[0]
        principal = await self._reads.read(lambda: self._find(hashed), same=hashed)
        self._kept.pop(hashed, None)
        if principal is not None:
            self._kept[hashed] = (principal, now + KEPT_S)
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return principal

    async def _find(self, hashed: bytes) -> Principal | None:
        async with self._db.snapshot() as tx:
            return await tokens.find(tx, hashed)
