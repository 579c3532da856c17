"""The database's words for a segment, as `plan` takes them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fabric_manager.domain.lifecycle import Goal, Phase
from fabric_manager.reconciler.plan import Place, SentRelease, Wanted


def wanted_of(segment: Mapping[str, Any], *, late: bool = False) -> Wanted:
    place = segment["place"]
    return Wanted(
        segment_id=UUID(segment["id"]),
        phase=Phase(segment["phase"]),
        goal=Goal(segment["goal"]),
        kind=segment["kind"],
        serial=segment["serial"],
        size_bytes=segment["size_bytes"],
        ld_id=segment["ld_id"],
        place=Place(**place) if place else None,
        spans=tuple((start, size) for start, size in segment["spans"]),
        region=segment["region"],
        sanitize_on_release=segment["sanitize_on_release"],
        sanitized=segment["sanitized"],
        late=late,
        offers=segment["offers"],
        refusals=segment["refusals"],
        exposed=segment["exposed"],
        offered_in=tuple(segment["offered_in"]),
        releases=tuple(SentRelease(**sent) for sent in segment["releases"]),
    )
