"""A typed client of the fabric manager's HTTP service. It imports nothing else of ours, so it can be copied out."""

from fabric_manager.client.allocations import ENDS
from fabric_manager.client.errors import ClientError, ProblemError, UnexpectedAnswerError, UnreachableError
from fabric_manager.client.nouns import NOUNS
from fabric_manager.client.service import FabricManager
from fabric_manager.client.values import (
    Allocation,
    AllocationRequest,
    Consumer,
    Document,
    FabricEvent,
    Placed,
    SegmentState,
    Timeline,
    TimelineEntry,
)

__all__ = [
    "ENDS",
    "NOUNS",
    "Allocation",
    "AllocationRequest",
    "ClientError",
    "Consumer",
    "Document",
    "FabricEvent",
    "FabricManager",
    "Placed",
    "ProblemError",
    "SegmentState",
    "Timeline",
    "TimelineEntry",
    "UnexpectedAnswerError",
    "UnreachableError",
]
