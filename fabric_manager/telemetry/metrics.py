"""Every metric there is, in base units. docs/metrics.md explains each; a test compares.

Labels are bounded by what people declare (pools, fabrics) or by the code (codes, goals, routes): never a key, a host, a
tenant or anything else that comes with requests.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
disable_created_metrics()  # type: ignore[no-untyped-call]

# Counted by this process as it works.
PROCESS = CollectorRegistry()
ProcessCollector(registry=PROCESS)

ANSWER_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
GOAL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
COMMAND_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

HTTP_REQUESTS = Counter(
    "fabric_manager_http_requests_total",
    "Requests answered.",
    ["operation", "method", "status"],
    registry=PROCESS,
)
HTTP_SECONDS = Histogram(
    "fabric_manager_http_request_duration_seconds",
    "From a request to the beginning of its answer; long polls wait as long as they were asked to.",
    ["operation", "method"],
    buckets=ANSWER_BUCKETS,
    registry=PROCESS,
)
PROBLEMS = Counter("fabric_manager_problems_total", "Answers that were problems, by code.", ["code"], registry=PROCESS)
REFUSALS = Counter(
    "fabric_manager_refusals_total", "Requests for memory that were refused, by code.", ["code"], registry=PROCESS
)
WAITERS = Gauge("fabric_manager_waiters", "Callers that wait for a change, streams among them.", registry=PROCESS)
EVENT_LISTENERS = Gauge("fabric_manager_event_listeners", "Open streams of events.", registry=PROCESS)

BIND_SECONDS = Histogram(
    "fabric_manager_bind_duration_seconds",
    "From the request to bind to memory read back as bound.",
    buckets=GOAL_BUCKETS,
    registry=PROCESS,
)
RELEASE_SECONDS = Histogram(
    "fabric_manager_release_duration_seconds",
    "From the request to release to erased and free, the time that a node kept it online included.",
    buckets=GOAL_BUCKETS,
    registry=PROCESS,
)
OPERATIONS_FINISHED = Counter(
    "fabric_manager_operations_finished_total",
    "Operations that this process brought to an end.",
    ["goal", "state"],
    registry=PROCESS,
)
HARDWARE_COMMANDS = Counter(
    "fabric_manager_hardware_commands_total",
    "Commands sent to hardware, polls and scans too.",
    ["opcode", "outcome"],
    registry=PROCESS,
)
HARDWARE_SECONDS = Histogram(
    "fabric_manager_hardware_command_duration_seconds",
    "From a command to its answer; background operations answer when they have begun.",
    ["opcode"],
    buckets=COMMAND_BUCKETS,
    registry=PROCESS,
)
FABRIC_OWNED = Gauge(
    "fabric_manager_fabric_owned", "1 while this process drives the fabric.", ["fabric"], registry=PROCESS
)
OWNERSHIP_LOST = Counter(
    "fabric_manager_ownership_lost_total",
    "Times that this process found a fabric taken from it.",
    ["fabric"],
    registry=PROCESS,
)
INVARIANT_VIOLATIONS = Gauge(
    "fabric_manager_invariant_violations", "Broken promises that the last check found.", ["check"], registry=PROCESS
)
INVARIANTS_CHECKED_AT = Gauge(
    "fabric_manager_invariants_checked_timestamp_seconds", "When the promises were last checked.", registry=PROCESS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A metric that is read when it is asked for, and left out when it cannot be."""

    name: str
    documentation: str
    labels: tuple[str, ...] = ()
    kind: str = "gauge"


MEMORY_BYTES = Reading(
    name="fabric_manager_memory_bytes",
    documentation="Memory of each pool's devices by bucket; the buckets sum to the capacity.",
    labels=("pool", "bucket"),
)
OPERATIONS = Reading(
    name="fabric_manager_operations",
    documentation="Operations that are not finished.",
    labels=("goal", "state"),
)
OPERATION_OLDEST_SECONDS = Reading(
    name="fabric_manager_operation_oldest_age_seconds",
    documentation="Age of the oldest operation that is not finished.",
    labels=("goal",),
)
EVENTS = Reading(
    name="fabric_manager_events_total", documentation="Events numbered since the beginning.", kind="counter"
)
EVENTS_WAITING = Reading(
    name="fabric_manager_events_waiting",
    documentation="Events that were written and not numbered yet, counted up to 100,000.",
)
EVENTS_WAITING_SECONDS = Reading(
    name="fabric_manager_events_waiting_age_seconds", documentation="Age of the oldest event not numbered yet."
)
FABRIC_STATE = Reading(
    name="fabric_manager_fabric_state", documentation="1 for the state the fabric is in.", labels=("fabric", "state")
)
FABRIC_SCAN_SECONDS = Reading(
    name="fabric_manager_fabric_scan_age_seconds",
    documentation="Since the fabric was last read as a whole.",
    labels=("fabric",),
)
DATABASE_UP = Reading(name="fabric_manager_database_up", documentation="1 when the database answered this scrape.")
DATABASE_CONNECTIONS = Reading(
    name="fabric_manager_database_connections",
    documentation="Open connections by state; `verbs` and `rows` have a pool each.",
    labels=("use", "state"),
)
DATABASE_CONNECTIONS_MAX = Reading(
    name="fabric_manager_database_connections_max",
    documentation="Connections that a pool may have.",
    labels=("use",),
)
DATABASE_WAITERS = Reading(
    name="fabric_manager_database_waiters",
    documentation="Tasks that wait for a connection.",
    labels=("use",),
)

READINGS = tuple(value for value in globals().values() if isinstance(value, Reading))
Sample = tuple[tuple[str, ...], float]
Readings = Mapping[Reading, Iterable[Sample]]


class Read:
    """What was read, as the library collects it."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        for reading, samples in self._readings.items():
            family = GaugeMetricFamily if reading.kind == "gauge" else CounterMetricFamily
            metric = family(reading.name, reading.documentation, labels=reading.labels)
            for labels, value in samples:
                metric.add_metric(labels, value)
            yield metric


def exposition(readings: Readings) -> bytes:
    """All of it as Prometheus text."""
    read = CollectorRegistry()
    read.register(Read(readings))
    return generate_latest(PROCESS) + generate_latest(read)
