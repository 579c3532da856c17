"""Bind a reservation to a host later, and take it off again without giving it up."""

from fabric_manager.allocator.claim import Identities
from fabric_manager.allocator.outcomes import not_found, refused, released
from fabric_manager.domain.actor import Actor
from fabric_manager.domain.allocation import Allocation
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store import verbs
from fabric_manager.store.allocations import from_document
from fabric_manager.store.database import Database
from fabric_manager.store.verbs import Answer


async def bind(
    db: Database, *, key: str, host: str, deadline_s: int, actor: Actor, identities: Identities
) -> Allocation:
    """Plan where it hangs on the switch and let the reconciler bind it. Bound to `host` already: nothing changes.

    Raises FabricError not_found, released, illegal_phase, releasing, not_reachable_from_host, host_limit_reached or
    fenced; the allocation then stays as it was, and the refusal is kept as event `allocation.refused`.
    """
    ids = {"attachment_id": identities(), "operation_id": identities()}
    answer = await verbs.bind(db, key=key, host=host, deadline_s=deadline_s, ids=ids, actor=actor)
    try:
        return outcome(key, answer)
    except FabricError as error:
        if error.code is not Code.NOT_FOUND:
            await verbs.record_refusal(db, key=key, request={"host": host}, error=error, actor=actor)
        raise


async def unbind(db: Database, *, key: str, actor: Actor, identities: Identities) -> Allocation:
    """Take it from its host and erase it; the reservation stays. Reserved already: nothing changes.

    Raises FabricError not_found, released, illegal_phase or releasing.
    """
    return outcome(key, await verbs.unbind(db, key=key, operation_id=identities(), actor=actor))


def outcome(key: str, answer: Answer) -> Allocation:
    match answer["outcome"]:
        case "absent":
            raise not_found(key)
        case "released":
            raise released(key)
        case "refused":
            raise refused(answer["refusal"])
    return from_document(answer["allocation"])
