"""How a database function's refusal becomes the error a caller sees."""

from collections.abc import Mapping
from typing import Any

from fabric_manager.domain.errors import Code, FabricError

SENTENCES: Mapping[Code, str] = {
    Code.QUOTA_EXCEEDED: "the tenant's quota does not allow it",
    Code.NOT_REACHABLE_FROM_HOST: "the device is not on a switch that the host has a port on",
    Code.HOST_LIMIT_REACHED: "the host cannot take another attachment to this device",
    Code.FENCED: "the host is fenced; it gets no memory until it is back with a new boot id",
    Code.RELEASING: "the memory is being taken from the host; the node must not use it",
    Code.ILLEGAL_PHASE: "the allocation is in a phase that does not allow it",
    Code.STALE_GENERATION: "the host's epoch has moved on; register the boot id again",
    Code.NOT_FOUND: "the allocation has no such segment",
}


# Nothing was decided about the request itself.
INFRASTRUCTURE = frozenset({Code.DATABASE_UNAVAILABLE, Code.READ_ONLY, Code.OVERLOADED, Code.RECOVERING})


def infrastructural(error: FabricError) -> bool:
    return error.code in INFRASTRUCTURE


def not_found(key: str) -> FabricError:
    return FabricError(Code.NOT_FOUND, f"there is no allocation {key!r}")


def released(key: str) -> FabricError:
    return FabricError(
        Code.RELEASED,
        f"allocation {key!r} was released; its key stays used for at least 24 hours. Choose a new key",
    )


def refused(refusal: Mapping[str, Any]) -> FabricError:
    """The function's own code and facts, with a sentence."""
    code = Code(refusal["code"])
    facts = {name: value for name, value in refusal.items() if name != "code" and value is not None}
    detail = SENTENCES[code]
    return FabricError(code, f"{detail}: {facts['reason']}" if "reason" in facts else detail, **facts)
