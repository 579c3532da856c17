"""From one answer to the next call: which members of what an operation answers name parameters of others."""

from collections.abc import Mapping
from typing import Any

KEY = {"allocation_key": "$response.body#/key"}

# By the schema of the answer: the operations that go on from it, and where their parameters come from.
LINKS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "AllocationView": {
        "get_allocation": KEY,
        "delete_allocation": KEY,
        "put_allocation_binding": KEY,
        "delete_allocation_binding": KEY,
        "report_node_state": KEY,
        "get_allocation_timeline": KEY,
        "get_operation": {"operation_id": "$response.body#/operation/id"},
        "get_host": {"host_id": "$response.body#/host"},
        "get_pool": {"pool_id": "$response.body#/pool"},
    },
    "OperationView": {
        "get_allocation": {"allocation_key": "$response.body#/allocation"},
        "get_fabric": {"fabric_id": "$response.body#/fabric"},
    },
    "DeviceView": {
        "get_pool": {"pool_id": "$response.body#/pool"},
        "get_fabric": {"fabric_id": "$response.body#/fabric"},
    },
    "TimelineView": {"get_allocation": KEY},
    "CandidatesView": {"get_device": {"device_id": "$response.body#/candidates/0/device"}},
    "LogicalDeviceView": {
        "get_device": {"device_id": "$response.body#/device"},
        "get_allocation": {"allocation_key": "$response.body#/allocation"},
    },
    "ExtentView": {
        "get_device": {"device_id": "$response.body#/device"},
        "get_allocation": {"allocation_key": "$response.body#/allocation"},
    },
    "AttachmentView": {
        "get_host": {"host_id": "$response.body#/host"},
        "get_device": {"device_id": "$response.body#/device"},
    },
}


def link_name(schema: str, operation_id: str) -> str:
    return f"{schema.removesuffix('View')}_{operation_id}"


def components() -> dict[str, Any]:
    return {
        link_name(schema, operation_id): {"operationId": operation_id, "parameters": dict(parameters)}
        for schema, targets in LINKS.items()
        for operation_id, parameters in targets.items()
    }


def links_of(schema: str, *, from_operation: str) -> dict[str, Any]:
    """The `links` of an answer of this schema; an operation does not lead to itself."""
    return {
        operation_id: {"$ref": f"#/components/links/{link_name(schema, operation_id)}"}
        for operation_id in LINKS.get(schema, {})
        if operation_id != from_operation
    }
