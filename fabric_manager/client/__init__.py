"""A typed client of the fabric manager's HTTP service. It imports nothing else of ours, so it can be copied out."""

from fabric_manager.client.allocations import ENDS
from fabric_manager.client.errors import ClientError, ProblemError, UnexpectedAnswerError, UnreachableError
from fabric_manager.client.inventory import Change, FieldChange
from fabric_manager.client.nouns import NOUNS
from fabric_manager.client.service import FabricManager
from fabric_manager.client.values import (
    Allocation,
    AllocationRequest,
    Candidate,
    Candidates,
    Condition,
    Consumer,
    Document,
    FabricEvent,
    Operation,
    Placed,
    Segment,
    SegmentState,
    Timeline,
    TimelineEntry,
)

__all__ = [
    "ENDS",
    "NOUNS",
    "Allocation",
    "AllocationRequest",
    "Candidate",
    "Candidates",
    "Change",
    "ClientError",
    "Condition",
    "Consumer",
    "Document",
    "FabricEvent",
    "FabricManager",
    "FieldChange",
    "Operation",
    "Placed",
    "ProblemError",
    "Segment",
    "SegmentState",
    "Timeline",
    "TimelineEntry",
    "UnexpectedAnswerError",
    "UnreachableError",
]
