"""Why a request does not fit, from what each filter left over."""

from collections.abc import Mapping
from dataclasses import dataclass

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.units import format_size

# The code of a refusal is that of the filter that removed the last candidate.
CODES: Mapping[str, Code] = {
    "known": Code.NO_MATCHING_DEVICE,
    "healthy": Code.NO_MATCHING_DEVICE,
    "enabled": Code.NO_MATCHING_DEVICE,
    "reachable": Code.NOT_REACHABLE_FROM_HOST,
    "attachable": Code.HOST_LIMIT_REACHED,
    "pool": Code.NO_MATCHING_DEVICE,
    "capable": Code.ISOLATION_UNSATISFIABLE,
    "space": Code.INSUFFICIENT_CAPACITY,
}

SENTENCES: Mapping[str, str] = {
    "known": "no memory device is known yet",
    "healthy": "no known device is healthy",
    "enabled": "no healthy device is enabled for new allocations",
    "reachable": "no enabled device is on a switch that the host has a port on",
    "attachable": "the host has no free vPPB left towards any device it can reach",
    "capable": "no device left can erase memory before it is handed on",
    "pool": "no reachable device is in the pool, or is the device or attachment kind, that was asked for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One filter and how many devices passed it and all before it."""

    filter: str
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """`free_bytes` and the fits are over devices that only space could exclude; "soon" counts what comes back."""

    steps: tuple[Step, ...]
    undiscovered: int  # declared, would be asked, and not read from hardware yet
    free_bytes: int
    largest_fit_bytes: int
    largest_fit_soon_bytes: int


def refuse(size_bytes: int, funnel: Funnel) -> FabricError:
    """The refusal for a request of `size_bytes` that left `funnel`.

    When a device got room between the attempt and the funnel, it is `insufficient_capacity` that waiting helps.
    """
    emptied = next((step.filter for step in funnel.steps if step.left == 0), "space")
    if emptied == "healthy" and funnel.undiscovered:
        detail = f"{funnel.undiscovered} devices that could serve it have not been read from hardware yet"
        return FabricError(Code.FABRIC_UNREACHABLE, detail, retry_after_ms=1000)
    code = CODES[emptied]
    if emptied == "space" and funnel.free_bytes >= size_bytes > funnel.largest_fit_bytes:
        code = Code.FRAGMENTATION
    waiting_helps = emptied == "space" and funnel.largest_fit_soon_bytes >= size_bytes
    return FabricError(
        code,
        SENTENCES.get(emptied) or no_room(size_bytes, funnel, waiting_helps),
        funnel=[{"filter": step.filter, "left": step.left} for step in funnel.steps],
        largest_fit_bytes=funnel.largest_fit_bytes,
        waiting_helps=waiting_helps,
    )


def no_room(size_bytes: int, funnel: Funnel, waiting_helps: bool) -> str:
    sentence = (
        f"asked for {format_size(size_bytes)}; the largest single grant is {format_size(funnel.largest_fit_bytes)}"
        f" of {format_size(funnel.free_bytes)} free in all"
    )
    return f"{sentence}; memory that is being given back will be enough" if waiting_helps else sentence
