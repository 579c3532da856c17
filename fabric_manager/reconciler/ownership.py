"""The right to drive one fabric: held by one process at a time, lost by the clock."""

import asyncio
import logging
import time

from fabric_manager.domain.errors import FabricError
from fabric_manager.reconciler.pace import Pace
from fabric_manager.store import work
from fabric_manager.store.database import Database, EpochLostError
from fabric_manager.store.work import Owned

log = logging.getLogger(__name__)


class Lease:
    """Renewed in the background. `may_send` is asked right before each command; the database is too far away."""

    def __init__(self, db: Database, owned: Owned, pace: Pace, *, asked_at: float) -> None:
        self.owned = owned
        self.lost = asyncio.Event()
        self._db = db
        self._pace = pace
        self._valid_until = asked_at + pace.ttl_s  # of the monotonic clock, from before the database was asked

    def may_send(self) -> None:
        """Raises EpochLostError when a successor may already be at work."""
        if self.lost.is_set() or time.monotonic() >= self._valid_until:
            raise EpochLostError(f"ownership of fabric {self.owned.fabric_id} was not renewed in time")

    async def keep(self) -> None:
        """Renew until somebody else owns the fabric. A database that does not answer is asked again."""
        while not self.lost.is_set():
            await asyncio.sleep(self._pace.renew_s)
            asked_at = time.monotonic()
            try:
                if await work.renew(self._db, self.owned, ttl_s=self._pace.ttl_s):
                    self._valid_until = asked_at + self._pace.ttl_s
                else:
                    self.lost.set()
            except FabricError as error:
                log.warning("ownership not renewed", extra={"fabric_id": str(self.owned.fabric_id), "why": str(error)})
