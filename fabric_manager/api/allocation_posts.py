"""Allocations for people: the service makes the key. Programs choose their own and use PUT."""

import base64
import hashlib
import json
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response

from fabric_manager.api.allocations import REFUSALS, Prefer, claim_for, wait_until_settled, whole
from fabric_manager.api.answers import described
from fabric_manager.api.auth import Writer
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import AllocationView
from fabric_manager.api.waiting import preferred_wait_s
from fabric_manager.api.wire import AllocationRequest, order_from
from fabric_manager.domain.actor import Principal

router = APIRouter(tags=["allocations"])

TENANT_MAX = 100  # characters of the tenant's name in a key
CHANCE_BYTES = 10  # 16 characters
IDEMPOTENCY_BYTES = 16

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Yours to choose. Asking again with it gets the same allocation; another caller's does not clash.",
    ),
]


def readable_key(tenant: str, identity: UUID) -> str:
    """A key that a person can read out: the tenant, and 80 bits of `identity`'s digest in four groups."""
    text = base64.b32encode(hashlib.sha256(identity.bytes).digest()[:CHANCE_BYTES]).decode().lower()
    groups = [text[at : at + 4] for at in range(0, len(text), 4)]
    return "-".join([tenant[:TENANT_MAX], *groups])


def idempotent_key(caller: Principal, idempotency_key: str) -> str:
    """The one key that this caller's Idempotency-Key stands for.

    So repetition is `claim`'s own: stored with the allocation in one transaction, compared field by field, forgotten
    when the key is. The tenant is left out, so that another one under the same header is a mismatch and not a second
    allocation. As JSON, no two lists have one text.
    """
    scope = [caller.name, caller.tenant, caller.cluster, caller.host, idempotency_key]
    return "idem:" + hashlib.sha256(json.dumps(scope).encode()).digest()[:IDEMPOTENCY_BYTES].hex()


RESPONSES = described({200: AllocationView, 201: AllocationView}, *REFUSALS, writes=True)
for status in (200, 201):
    RESPONSES[status]["headers"] = {
        **RESPONSES[status]["headers"],
        "Location": {"description": "The path of the allocation.", "schema": {"type": "string"}},
    }


@router.post(
    "/allocations",
    operation_id="create_allocation",
    summary="Reserve capacity under a key that the service makes",
    description=(
        "For people. Without `Idempotency-Key` every call is another allocation, also when the answer was lost; "
        "with it, asking again gets the same one (200), another request is 409 `key_reuse_mismatch`, and once it "
        "was released 410 `released`. A refused request holds no key: asking again decides anew."
    ),
    responses=RESPONSES,
)
async def post_allocation(
    *,
    request: Request,
    body: AllocationRequest,
    services: WithServices,
    caller: Writer,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Response:
    if idempotency_key is None:
        key = readable_key(body.tenant, services.identities())
    else:
        key = idempotent_key(caller, idempotency_key)
    claimed = await claim_for(request, order_from(key, body), services, caller)
    allocation = await wait_until_settled(services, claimed.allocation, preferred_wait_s(prefer))
    response = whole(allocation, status=201 if claimed.created else 200)
    response.headers["Location"] = f"/v1/allocations/{allocation.key}"
    return response
