"""Give memory back."""

from fabric_manager.allocator.claim import Identities
from fabric_manager.domain.actor import Actor
from fabric_manager.domain.allocation import Allocation
from fabric_manager.store import verbs
from fabric_manager.store.allocations import from_document
from fabric_manager.store.database import Database


async def release(
    db: Database, *, key: str, tombstone_scope: str, actor: Actor, identities: Identities
) -> Allocation | None:
    """Make release the goal of `key`; None when nothing remains to be done.

    An unknown key gets a tombstone that binds `tombstone_scope` ("any", "tenant:<name>", "cluster:<name>"), so that
    a request overtaken by its release does not come to life.
    """
    answer = await verbs.release(db, key=key, tombstone_scope=tombstone_scope, operation_id=identities(), actor=actor)
    return from_document(answer["allocation"]) if answer["outcome"] == "releasing" else None
