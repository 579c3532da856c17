"""Declare fabrics, pools, devices and hosts: what people know and hardware cannot tell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fabric_manager.domain.actor import Actor
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store.database import Database
from fabric_manager.store.verbs import context

Identities = Callable[[], UUID]
Declared = Mapping[str, Sequence[Mapping[str, Any]]]
Tags = tuple[str, ...]

# In the order in which they refer to each other.
NOUNS = (("fabrics", "fabric"), ("pools", "pool"), ("devices", "device"), ("hosts", "host"))
# History that names what is deleted may be long, and an inventory holds thousands of things.
LONG_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Versions that the thing must, or must not, have; "*" is any. None is no condition."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None

    def as_arg(self) -> dict[str, list[str]]:
        given = {"if_match": self.if_match, "if_none_match": self.if_none_match}
        return {name: list(tags) for name, tags in given.items() if tags is not None}


ALWAYS = Conditions()


async def apply(
    db: Database,
    inventory: Declared,
    *,
    dry_run: bool,
    actor: Actor,
    identities: Identities,
    conditions: Conditions = ALWAYS,
) -> list[dict[str, Any]]:
    """Bring everything in `inventory` to what it says, all or nothing. What it does not name is left alone.

    Answers what was done, or with `dry_run` would be done: {noun, name, action create or change, fields [{field,
    have, want}]}. Raises FabricError with the `noun` and `name` of the first thing refused; then nothing has changed.
    """
    things = {plural: list(inventory.get(plural, ())) for plural, _ in NOUNS}
    arg = {
        "inventory": things,
        "ids": [identities() for several in things.values() for _ in several],
        "dry_run": dry_run,
        "ctx": context(actor),
        **conditions.as_arg(),
    }
    answer = await db.call("apply_inventory", arg, timeout_s=LONG_S)
    if "refused" in answer:
        raise refusal_of(answer)
    return list(answer["diff"])


async def declare(db: Database, inventory: Declared, *, actor: Actor, identities: Identities) -> int:
    """`apply` it; answers how many things changed."""
    return len(await apply(db, inventory, dry_run=False, actor=actor, identities=identities))


async def put(
    db: Database, noun: str, wish: Mapping[str, Any], *, conditions: Conditions, actor: Actor, identities: Identities
) -> bool:
    """Bring one thing to what `wish` says; nothing is written when nothing differs. True when it is new.

    Raises FabricError validation_failed for a reference to nothing and a name, port or serial that belongs to
    something else, illegal_phase with `used_by` for a change that takes it from who uses it, and stale_generation.
    """
    arg = {"id": identities(), noun: wish, "ctx": context(actor), **conditions.as_arg()}
    answer = await db.call(f"put_{noun}", arg)
    if "refused" in answer:
        raise refusal_of(answer)
    return bool(answer["created"])


async def delete(db: Database, noun: str, ref: str, *, conditions: Conditions, actor: Actor) -> None:
    """Delete what `ref`, a name or an id, stands for; a device is retired.

    Raises FabricError not_found, stale_generation, and illegal_phase with `used_by` while something uses it.
    """
    arg = {"ref": ref, "ctx": context(actor), **conditions.as_arg()}
    answer = await db.call(f"delete_{noun}", arg, timeout_s=LONG_S)
    if "refused" in answer:
        raise refusal_of(answer)


async def cordon(db: Database, ref: str, *, cordoned: bool, conditions: Conditions, actor: Actor) -> None:
    """Let a device get nothing new, or get it again; it keeps what it has. Raises FabricError as `delete` does."""
    arg = {"ref": ref, "cordoned": cordoned, "ctx": context(actor), **conditions.as_arg()}
    answer = await db.call("cordon_device", arg)
    if "refused" in answer:
        raise refusal_of(answer)


def refusal_of(answer: Mapping[str, Any]) -> FabricError:
    """The function's code, sentence and facts; one of many things is named by its place too."""
    facts = dict(answer["refused"])
    code, detail, field = Code(facts.pop("code")), facts.pop("detail"), facts.pop("field", None)
    if "noun" in answer:
        facts |= {"noun": answer["noun"], "name": answer["name"]}
        place = f"{answer['noun']}s.{answer['index']}"
        field = f"{place}.{field}" if field else place
    if code is Code.VALIDATION_FAILED:
        facts["errors"] = [{"field": field, "message": detail}]
    return FabricError(code, detail, **facts)
