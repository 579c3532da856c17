"""What a node says of its memory: online before it brings it up, offline after it let go."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from fabric_manager.allocator.bind import outcome
from fabric_manager.domain.actor import Actor
from fabric_manager.domain.allocation import Allocation
from fabric_manager.store import verbs
from fabric_manager.store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One segment's state at the host. `phase` is online, offline or offline_failed."""

    segment_id: UUID
    phase: str
    numa_node: int | None = None
    dax_device: str | None = None


async def report_node_state(
    db: Database, *, key: str, boot_id: str, epoch: int | None, reports: Sequence[NodeReport], actor: Actor
) -> Allocation:
    """Take the node's word. `online` is accepted only in bound or online; after a refusal the node must not go on.

    The first report with a new boot id registers it: what the host had online before is bound again.
    Raises FabricError not_found, released, illegal_phase, releasing or stale_generation; then nothing is taken.
    """
    body = [{"id": report.segment_id, **asdict(report)} for report in reports]
    answer = await verbs.report_node_state(db, key=key, boot_id=boot_id, epoch=epoch, reports=body, actor=actor)
    if answer["outcome"] == "boot_unknown":
        await verbs.register_boot(db, host=answer["host"], boot_id=boot_id, actor=actor)
        answer = await verbs.report_node_state(db, key=key, boot_id=boot_id, epoch=epoch, reports=body, actor=actor)
    return outcome(key, answer)
