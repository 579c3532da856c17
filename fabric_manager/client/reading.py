"""From JSON to values, by hand, once."""

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from fabric_manager.client.errors import UnexpectedAnswerError
from fabric_manager.client.values import (
    Allocation,
    Binding,
    Candidate,
    Candidates,
    Check,
    Condition,
    Consumer,
    Document,
    EventPage,
    FabricEvent,
    Failure,
    Invariants,
    Operation,
    OperationRef,
    Segment,
    Span,
    Timeline,
    TimelineEntry,
    Violation,
)

T = TypeVar("T")


def read(reader: Callable[[Any], T], answer: Any) -> T:
    """`answer` as `reader` sees it. Raises UnexpectedAnswerError when a field is missing or of another type."""
    try:
        return reader(answer)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswerError(f"the answer is not what the contract says: {error!r}") from error


def allocation(document: Document) -> Allocation:
    return _known(
        Allocation,
        document,
        consumer=_optional(consumer, document.get("consumer")),
        segments=tuple(segment(each) for each in document["segments"]),
        conditions=tuple(condition(each) for each in document["conditions"]),
        failure=_optional(failure, document.get("failure")),
        operation=_optional(operation_ref, document.get("operation")),
        created_at=_time(document["created_at"]),
        updated_at=_time(document["updated_at"]),
        document=document,
    )


def candidates(document: Document) -> Candidates:
    each_one = tuple(_known(Candidate, each) for each in document["candidates"])
    return _known(Candidates, document, candidates=each_one, document=document)


def segment(document: Document) -> Segment:
    extents = document.get("extents")
    return _known(
        Segment,
        document,
        extents=None if extents is None else tuple(_known(Span, each) for each in extents),
        binding=_optional(binding, document.get("binding")),
    )


def binding(document: Document) -> Binding:
    return _known(Binding, document)


def consumer(document: Document) -> Consumer:
    return _known(Consumer, document)


def condition(document: Document) -> Condition:
    return _known(Condition, document, last_transition_at=_time(document["last_transition_at"]))


def failure(document: Document) -> Failure:
    return _known(Failure, document)


def operation_ref(document: Document) -> OperationRef:
    return _known(OperationRef, document)


def operation(document: Document) -> Operation:
    return _known(Operation, document, document=document)


def event(document: Document) -> FabricEvent:
    return _known(FabricEvent, document, at=_time(document["at"]), document=document)


def event_page(document: Document) -> EventPage:
    return _known(EventPage, document, items=tuple(event(each) for each in document["items"]))


def as_of(document: Document) -> int:
    return int(document["as_of"])


def timeline(document: Document) -> Timeline:
    entries = tuple(_known(TimelineEntry, each, at=_time(each["at"])) for each in document["entries"])
    return _known(Timeline, document, entries=entries, document=document)


def invariants(document: Document) -> Invariants:
    return _known(
        Invariants,
        document,
        checks=tuple(_known(Check, each) for each in document["checks"]),
        violations=tuple(_known(Violation, each, objects=tuple(each["objects"])) for each in document["violations"]),
        document=document,
    )


def _known(kind: Callable[..., T], document: Document, /, **converted: Any) -> T:
    """A `kind` from the fields it has; the rest of the document is ignored."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in document.items() if name in names} | converted)


def _optional(reader: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else reader(value)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
