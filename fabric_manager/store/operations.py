"""Operations: the durable goals, newest first."""

from fabric_manager.domain.lifecycle import Goal
from fabric_manager.domain.operation import Operation, OperationState
from fabric_manager.store.inventory import filled
from fabric_manager.store.nouns import Noun, Sort, called, one_of

OPERATION = Noun[Operation](
    select="""SELECT o.*, a.key AS allocation, f.name AS fabric FROM operation o
              LEFT JOIN allocation a ON a.id = o.allocation_id LEFT JOIN fabric f ON f.id = o.fabric_id""",
    kinds=frozenset({"operation", "allocation", "fabric"}),
    sorts={"created_at": Sort[Operation](columns=[("o.id", "uuid")], place=lambda operation: (str(operation.id),))},
    sort="-created_at",
    one="o.id = CAST(:ref_id AS uuid)",
    filters={
        "state": one_of("o.state", list(OperationState)),
        "goal": one_of("o.goal", list(Goal)),
        "allocation": "o.allocation_id = (SELECT id FROM allocation WHERE key = :allocation AND NOT forgotten)",
        "fabric": "o.fabric_id = " + called("fabric", "fabric"),
    },
    bounds={
        "sees_tenant": "a.tenant_id = (SELECT id FROM tenant WHERE name = :sees_tenant)",
        "sees_cluster": "a.cluster = :sees_cluster",
        "sees_host": "a.host_id = (SELECT id FROM host WHERE name = :sees_host)",
    },
    read=lambda row: filled(Operation, row),
)
