"""Who asks, and through which request."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    NODE = "node"
    CONTROLLER = "controller"
    TENANT = "tenant"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    BREAKGLASS = "breakglass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The owner of a token. `tenant`, `cluster` and `host` bound what it may see; None is no bound."""

    name: str
    role: Role
    tenant: str | None = None
    cluster: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Stands on every event. `cause` is what made the service act by itself; None when a caller asked."""

    name: str
    request_id: str | None = None
    cause: str | None = None


RECONCILER = "reconciler"
