"""Requests that work as pasted against `make demo`, and the answers that such a service gave to them.

`tests/documented.py` plays them; `make examples` writes the answers anew.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

GiB = 1 << 30
KEY = "7c9e6679-7425-40de-944b-e07fc1f90ae7:mem0"
MADE_BY_THE_SERVICE = "0199d3a0-6c5e-7c31-9d4b-0f4e2f1f6a10"  # look in the list for one that is there
DEMO_BOOT_ID = "6b1d3a52-7c0e-4f6a-9a53-0d5c1f1e0003"  # another one would mean that node-3 was restarted

CLAIM = {
    "tenant": "analytics",
    "size_bytes": 64 * GiB,
    "host": "node-3",
    "pool": "high-performance",
    "consumer": {
        "kind": "ResourceClaim",
        "cluster": "demo",
        "namespace": "default",
        "name": "analytic-memory-claim",
        "uid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    },
}

# By parameter name; `operation.parameter` where one operation needs another value.
PARAMETERS: Mapping[str, str] = {
    "allocation_key": KEY,
    "pool_id": "high-performance",
    "device_id": "mld-0",
    "host_id": "node-3",
    "fabric_id": "rack-0",
    "switch_id": "sw-0",
    "vcs_id": "sw-0:3",
    "port_id": "sw-0:3",
    **dict.fromkeys(("put_fabric.fabric_id", "delete_fabric.fabric_id"), "rack-9"),
    **dict.fromkeys(("put_pool.pool_id", "delete_pool.pool_id"), "archive"),
    **dict.fromkeys(("put_device.device_id", "delete_device.device_id"), "spare-0"),
    **dict.fromkeys(("put_host.host_id", "delete_host.host_id"), "node-8"),
}

# By operation: named requests, in the order in which they make sense.
REQUESTS: Mapping[str, Mapping[str, tuple[str, Any]]] = {
    "put_allocation": {"claim": ("64 GiB of fast memory for a Kubernetes claim on node-3", CLAIM)},
    "create_allocation": {
        "bound": (
            "100 GiB for node-5, in steps of 2 MiB",
            {"tenant": "analytics", "size_bytes": 100 * GiB, "pool": "standard", "host": "node-5"},
        ),
        "reserved": (
            "Reserve now, bind later; given up after an hour",
            {
                "tenant": "research",
                "size_bytes": 64 * GiB,
                "attachment": "logical-device",
                "reservation_ttl_s": 3600,
                "labels": {"team": "genomics"},
            },
        ),
    },
    "list_allocation_candidates": {
        "fits": (
            "Where would 48 GiB for node-3 go?",
            {"tenant": "analytics", "size_bytes": 48 * GiB, "host": "node-3"},
        ),
        "refused": (
            "Why does 65 GiB of fast memory not fit?",
            {"tenant": "analytics", "size_bytes": 65 * GiB, "pool": "high-performance"},
        ),
    },
    "put_fabric": {
        "paused": (
            "Known, and sent nothing that changes hardware",
            {"driver": "simulator", "endpoint": "simulator:/var/lib/rack-9", "admin_state": "paused"},
        )
    },
    "put_pool": {"archive": ("A pool of its own for slow memory", {"kind": "dcd", "tier": "archive"})},
    "put_device": {
        "spare": (
            "A device that was ordered and is not plugged in yet",
            {
                "serial": "SIM-MLD-0099",
                "fabric": "rack-0",
                "pool": "high-performance",
                "media": "dram",
                "bandwidth_bytes_per_s": 64_000_000_000,
                "latency_ns": 250,
            },
        )
    },
    "put_host": {
        "node": (
            "A new server on port 0 of a second switch",
            {"ports": [{"switch": "sw-1", "port": 0}], "kubernetes": {"cluster": "demo", "node": "node-8"}},
        )
    },
    "put_inventory": {
        "label": (
            "One host as it shall be; what is not named stays as it is",
            {
                "hosts": [
                    {
                        "name": "node-7",
                        "ports": [{"switch": "sw-0", "port": 7}],
                        "kubernetes": {"cluster": "demo", "node": "node-7"},
                        "labels": {"rack": "r1"},
                    }
                ]
            },
        )
    },
    "put_allocation_binding": {"host": ("To node-3", {"host": "node-3"})},
    "report_node_state": {
        "online": (
            "About to bring it up: go on only after 200",
            {"boot_id": DEMO_BOOT_ID, "segments": [{"phase": "online", "numa_node": 2, "dax_device": "dax0.0"}]},
        ),
        "offline": ("Let go of it", {"boot_id": DEMO_BOOT_ID, "segments": [{"phase": "offline"}]}),
    },
}

RECORDED = files("fabric_manager.api") / "recorded_answers.json"


def recorded() -> dict[str, dict[str, Any]]:
    """Answers by operation and status."""
    return dict(json.loads(RECORDED.read_text())) if RECORDED.is_file() else {}


def parameter(operation_id: str, name: str, schema: Mapping[str, Any]) -> str | None:
    """A value for a path parameter; None when nobody gave one."""
    if schema.get("format") == "uuid":
        return MADE_BY_THE_SERVICE
    return PARAMETERS.get(f"{operation_id}.{name}", PARAMETERS.get(name))


def requests(operation_id: str) -> dict[str, Any]:
    return {
        name: {"summary": summary, "value": body} for name, (summary, body) in REQUESTS.get(operation_id, {}).items()
    }
