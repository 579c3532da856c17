"""Operations: the durable goals, newest first."""

from fabric_manager.domain.operation import Operation
from fabric_manager.store.inventory import filled
from fabric_manager.store.nouns import Noun

OPERATION = Noun[Operation](
    select="""SELECT o.*, a.key AS allocation, f.name AS fabric FROM operation o
              LEFT JOIN allocation a ON a.id = o.allocation_id JOIN fabric f ON f.id = o.fabric_id""",
    order=[("o.id", "uuid")],
    one="o.id::text = :ref",
    filters={
        "state": "o.state = :state",
        "goal": "o.goal = :goal",
        "allocation": "a.key = :allocation",
        "fabric": ":fabric IN (f.name, f.id::text)",
    },
    bounds={
        "sees_tenant": "a.tenant_id = (SELECT id FROM tenant WHERE name = :sees_tenant)",
        "sees_cluster": "a.cluster = :sees_cluster",
        "sees_host": "a.host_id = (SELECT id FROM host WHERE name = :sees_host)",
    },
    newest_first=True,
    read=lambda row: filled(Operation, row),
    place=lambda operation: (str(operation.id),),
)
