"""What comes in: strict models, converted to the domain once, by hand."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fabric_manager.api.problems import invalid
from fabric_manager.domain.allocation import (
    DEADLINE_S_DEFAULT,
    RESERVATION_TTL_S_RESOURCE_CLAIM,
    RESOURCE_CLAIM,
    SIZE_BYTES_MAX,
    AttachmentKind,
    Consumer,
    Order,
)

DAY_S = 86_400
TTL_S_MAX = 30 * DAY_S
LABELS_MAX = 64
REPORTS_MAX = 256
INT_MAX = (1 << 53) - 1

Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:-]*)$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^\x00-\x1f\x7f]+$")]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._/-]+$")]
LabelValue = Annotated[str, StringConstraints(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
KEY_PATTERN = r"^[A-Za-z0-9._~:-]{1,200}$"
Key = Annotated[str, StringConstraints(pattern=KEY_PATTERN)]
Id = Annotated[UUID, Field(strict=False)]  # JSON has no UUID of its own

AllocationKey = Annotated[
    str,
    Path(
        pattern=KEY_PATTERN,
        description="Chosen by the caller; asking again with it gets the same allocation.",
        examples=["7c9e6679-7425-40de-944b-e07fc1f90ae7:mem0"],
    ),
]
Ref = Annotated[
    str, Path(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:-]*)$", description="Name or id.")
]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ConsumerBody(Request):
    """Who will use the memory. `uid` is the identity: a name may come back as somebody else."""

    kind: Name = Field(examples=[RESOURCE_CLAIM])
    cluster: Text | None = None
    namespace: Text | None = None
    name: Text | None = None
    uid: Text | None = None


class AllocationRequest(Request):
    """Capacity to reserve, and to bind when `host` is given and `bind` is not false."""

    tenant: Name
    size_bytes: int = Field(ge=1, le=SIZE_BYTES_MAX)
    host: Name | None = None
    bind: bool = True
    pool: Name | None = Field(None, description="Any device of this pool; not together with `device`.")
    device: Name | None = Field(None, description="This device and no other.")
    attachment: Literal["logical-device", "dynamic-capacity", "any"] = "any"
    consumer: ConsumerBody | None = None
    deadline_s: int = Field(DEADLINE_S_DEFAULT, ge=1, le=DAY_S, description="Binding that takes longer is undone.")
    reservation_ttl_s: int | None = Field(
        None,
        ge=1,
        le=TTL_S_MAX,
        description="An unbound reservation ends after this. Default 900 for consumer kind ResourceClaim, else never.",
    )
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=LABELS_MAX)


class BindingRequest(Request):
    host: Name
    deadline_s: int = Field(DEADLINE_S_DEFAULT, ge=1, le=DAY_S)


class SegmentReport(Request):
    id: Id | None = Field(None, description="May be left out when the allocation has one segment.")
    phase: Literal["online", "offline", "offline_failed"]
    numa_node: int | None = Field(None, ge=0, le=65535)
    dax_device: Text | None = None


class NodeStateRequest(Request):
    """What the node says: `online` before it brings the memory up, `offline` after it let go of it."""

    boot_id: Text
    epoch: int | None = Field(None, ge=0, le=INT_MAX)
    segments: list[SegmentReport] = Field(min_length=1, max_length=REPORTS_MAX)


def consumer_from(body: ConsumerBody) -> Consumer:
    return Consumer(kind=body.kind, cluster=body.cluster, namespace=body.namespace, name=body.name, uid=body.uid)


def reservation_ttl_s(body: AllocationRequest) -> int | None:
    claims = body.consumer is not None and body.consumer.kind == RESOURCE_CLAIM
    if body.reservation_ttl_s is None and claims:
        return RESERVATION_TTL_S_RESOURCE_CLAIM
    return body.reservation_ttl_s


def order_from(key: str, body: AllocationRequest) -> Order:
    """The domain's order, defaults filled in. Raises FabricError validation_failed."""
    if body.pool is not None and body.device is not None:
        raise invalid("device", "name a pool or a device, not both")
    return Order(
        key=key,
        tenant=body.tenant,
        size_bytes=body.size_bytes,
        host=body.host,
        bind=body.bind,
        pool=body.pool,
        device=body.device,
        attachment=AttachmentKind(body.attachment),
        consumer=consumer_from(body.consumer) if body.consumer else None,
        deadline_s=body.deadline_s,
        reservation_ttl_s=reservation_ttl_s(body),
        labels=dict(body.labels),
    )
