"""The product's promises, held against the live database."""

from fastapi import APIRouter, Response

from fabric_manager.api.answers import described, json_response
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.services import WithServices
from fabric_manager.api.views import CheckView, InvariantsView, ViolationView, picked
from fabric_manager.store import events, invariants

router = APIRouter(tags=["service"], dependencies=[AUTHENTICATED])


@router.get(
    "/invariants",
    operation_id="check_invariants",
    summary="Check every promise on the live database",
    responses=described({200: InvariantsView}),
)
async def get_invariants(services: WithServices) -> Response:
    async with services.db.snapshot() as tx:
        seq = await events.head(tx)
        checked = await invariants.check_all(tx)
    body = {
        "as_of": seq,
        "checks": [picked(CheckView, check) for check in checked],
        "violations": [picked(ViolationView, found) for check in checked for found in check.violations],
    }
    return json_response(body, headers={"Fabric-Seq": str(seq)})
