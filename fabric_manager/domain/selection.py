"""Which events somebody asked for."""

from collections.abc import Collection
from dataclasses import dataclass

from fabric_manager.domain.actor import Principal
from fabric_manager.domain.operation import FabricEvent

# Each names a field of the event that it has to equal.
EXACT = ("type", "key", "claim_uid", "cluster", "tenant", "host", "device", "pool")
BOUNDS = ("tenant", "cluster", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What `seen_by` may see, and of that what it wants; None and no kinds are no wish."""

    seen_by: Principal
    kinds: Collection[str] = ()
    type: str | None = None
    key: str | None = None
    claim_uid: str | None = None
    cluster: str | None = None
    tenant: str | None = None
    host: str | None = None
    device: str | None = None
    pool: str | None = None

    @property
    def wishes(self) -> dict[str, str]:
        """The fields that have to be equal, bounds left aside."""
        return {name: value for name in EXACT if (value := getattr(self, name)) is not None}

    @property
    def everything(self) -> bool:
        """No event is left out, so every number tells the reader how far it is."""
        return not self.kinds and not self.wishes and all(getattr(self.seen_by, name) is None for name in BOUNDS)

    def takes(self, event: FabricEvent) -> bool:
        return (
            (not self.kinds or event.object_kind in self.kinds)
            and all(getattr(event, name) == value for name, value in self.wishes.items())
            and all(getattr(self.seen_by, name) in (None, getattr(event, name)) for name in BOUNDS)
        )
