"""Where a request would go, and why: a dry run that writes nothing."""

from typing import Any

from fastapi import APIRouter, Response

from fabric_manager.allocator.preview import Offer, Preview, preview
from fabric_manager.api.answers import described, json_response
from fabric_manager.api.auth import Caller, check_may_order
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import CandidatesView, CandidateView, FilterView, RefusalView, picked
from fabric_manager.api.wire import AllocationRequest, order_from
from fabric_manager.domain.errors import Code

router = APIRouter(tags=["allocations"])


def offer_view(number: int, offer: Offer, size_bytes: int) -> dict[str, Any]:
    candidate = offer.place.candidate
    return picked(
        CandidateView,
        candidate,
        rank=number,
        device=offer.device,
        pool=offer.pool,
        waste_bytes=candidate.granted_bytes - size_bytes,
        decided_by=offer.place.decided_by,
        why=offer.place.why,
    )


def refusal_view(found: Preview) -> dict[str, Any] | None:
    if found.refusal is None:
        return None
    error = found.refusal
    return picked(
        RefusalView,
        error,
        detail=str(error),
        waiting_helps=bool(error.facts.get("waiting_helps")),
        largest_fit_bytes=found.funnel.largest_fit_bytes,
    )


@router.post(
    "/allocation-candidates",
    operation_id="list_allocation_candidates",
    summary="Try a request without making it",
    description=(
        "The devices that could hold it now, best first, and how many devices each filter left. A request that would "
        "be refused is answered with 200, no candidates, and the refusal. Nothing is written and nothing is held: "
        "the next claim may take it."
    ),
    responses=described({200: CandidatesView}, Code.FORBIDDEN, Code.TOO_LARGE),
)
async def post_allocation_candidates(body: AllocationRequest, services: WithServices, caller: Caller) -> Response:
    order = order_from("dry-run", body)
    check_may_order(caller, order)
    found = await preview(services.db, order, tenants_auto_create=services.tenants_auto_create)
    answer = {
        "size_bytes": order.size_bytes,
        "candidates": [offer_view(n, offer, order.size_bytes) for n, offer in enumerate(found.offers, start=1)],
        "funnel": [picked(FilterView, step) for step in found.funnel.steps],
        "largest_fit_bytes": found.funnel.largest_fit_bytes,
        "refusal": refusal_view(found),
    }
    return json_response(answer)
