"""What the API's description tells people: how to begin, and the operations by what somebody wants to do."""

from collections.abc import Mapping

from fabric_manager.domain.lifecycle import Phase

DESCRIPTION = f"""
Ask for capacity, look after it, give it back; and see afterwards what happened.

## Begin

`make demo` serves this API at `http://127.0.0.1:8080` over a simulated rack. The examples of this page work there as
they stand. Every call but `/healthz` and `/readyz` wants a token; the first one is in `.data/admin.token`. On this
page, press *Authorize* and paste it.

```sh
TOKEN=$(cat .data/admin.token)
curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/pools
curl -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -H 'Prefer: wait=30' \\
  -X PUT http://127.0.0.1:8080/v1/allocations/docs:first \\
  -d '{{"tenant": "analytics", "size_bytes": 68719476736, "pool": "high-performance", "host": "node-3"}}'
curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/allocations/docs:first/timeline
curl -H "Authorization: Bearer $TOKEN" -X DELETE http://127.0.0.1:8080/v1/allocations/docs:first
```

The key (`docs:first`) is yours to choose. Asked again with it, the service answers the same allocation, so a lost
answer is no trouble: ask again. A released key is not given out again.

## Phases

| phase | what it means for you |
|---|---|
| `{Phase.RESERVED}` | the bytes are yours; no host has them yet |
| `{Phase.BINDING}` | the switch is being asked |
| `{Phase.BOUND}` | hardware, read back, shows the memory to the host; the node may report it online |
| `{Phase.ONLINE}` | the node uses it; nobody takes it away |
| `{Phase.RELEASE_BLOCKED}` | it was deleted, and waits until the node reports it offline |
| `{Phase.RELEASING}`, `{Phase.SANITIZING}` | it leaves the host and is erased; nobody can have these bytes yet |
| `{Phase.RELEASED}` | the bytes are free again |
| `{Phase.FAILED}` | it could not be bound and was undone; `failure` says why. It holds no bytes |
| `{Phase.LOST}` | hardware no longer shows it to the host |
| `{Phase.QUARANTINED}` | what happened to it cannot be proven; an operator decides |

While work remains, `operation` names it. To wait: `Prefer: wait=30` on a change, `?wait=30` on a GET.

## When it says no

Every refusal is `application/problem+json` (RFC 9457) with a `code` that is never reworded: branch on it, not on the
text. `retryable`: the same request may succeed later, after `retry_after_ms`. `terminal_for`: the widest thing that
cannot succeed unchanged, `placement` (another size, pool or device may), `host` (another may) or `claim`. A placement
that was refused brings its `funnel`: how many devices each filter left. `POST /v1/allocation-candidates` tells all of
that beforehand. 503 and a lost answer mean: send the same again.

## The rest

Sizes are whole bytes, bandwidths bytes per second, times RFC 3339 in UTC. Unknown request fields are refused; ignore
answer fields that you do not know, for more may come. Lists give `next_cursor` and `as_of`, the number from which
`GET /v1/events` goes on without a gap. `X-Request-Id` stands on every event that your request caused.
"""

ALLOCATE, NODE, INVENTORY = "Allocate memory", "Node side", "Inventory"
WATCH, PROVE, SERVICE = "Watch", "Prove", "Service"

TASKS: Mapping[str, str] = {
    ALLOCATE: "Try a request, reserve capacity, bind it to a host, change it, give it back.",
    NODE: "What the host's node says before it uses memory and after it let go of it.",
    INVENTORY: "What there is: pools, devices and their parts, switches, hosts, fabrics. Declared here or read back.",
    WATCH: "Work that goes on, what changed, and the whole at a glance.",
    PROVE: "What happened to an allocation, and whether every promise holds right now.",
    SERVICE: "The service itself.",
}

# Each route is tagged with its noun; people look for what they want to do.
TASK_OF_NOUN: Mapping[str, str] = {
    "allocations": ALLOCATE,
    "pools": INVENTORY,
    "devices": INVENTORY,
    "logical-devices": INVENTORY,
    "extents": INVENTORY,
    "attachments": INVENTORY,
    "bindings": INVENTORY,
    "switches": INVENTORY,
    "ports": INVENTORY,
    "vcs": INVENTORY,
    "hosts": INVENTORY,
    "fabrics": INVENTORY,
    "topology": INVENTORY,
    "inventory": INVENTORY,
    "operations": WATCH,
    "events": WATCH,
    "summary": WATCH,
    "alarms": WATCH,
    "metrics": WATCH,
    "service": SERVICE,
}
TASK_OF_OPERATION: Mapping[str, str] = {
    "report_node_state": NODE,
    "get_allocation_timeline": PROVE,
    "check_invariants": PROVE,
}


def task_of(operation_id: str, noun: str) -> str:
    """The group in which an operation is shown; its noun when nobody said."""
    return TASK_OF_OPERATION.get(operation_id) or TASK_OF_NOUN.get(noun, noun)
