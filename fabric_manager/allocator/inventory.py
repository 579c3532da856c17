"""Declare fabrics, pools, devices and hosts: what people know and hardware cannot tell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from fabric_manager.domain.actor import Actor
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store.database import Database
from fabric_manager.store.verbs import context

# In the order in which they refer to each other.
NOUNS = (("fabrics", "fabric"), ("pools", "pool"), ("devices", "device"), ("hosts", "host"))


async def declare(
    db: Database, inventory: Mapping[str, Sequence[Mapping[str, Any]]], *, actor: Actor, identities: Callable[[], UUID]
) -> int:
    """Bring everything in `inventory` to what it says; nothing is deleted. Answers how many things changed.

    Each thing is a transaction of its own and may be declared any number of times. Raises FabricError
    validation_failed for a reference to nothing and a name or port that belongs to something else.
    """
    changed = 0
    for plural, noun in NOUNS:
        for wish in inventory.get(plural, ()):
            answer = await db.call(f"put_{noun}", {"id": identities(), noun: wish, "ctx": context(actor)})
            if "refused" in answer:
                raise FabricError(Code.VALIDATION_FAILED, answer["refused"])
            changed += bool(answer["changed"])
    return changed
