"""What people declare of a fabric: strict models, the same for the topology file and the API.

The facts of a thing are what a PUT of it takes; its declaration has the name too.
"""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from fabric_manager.api.wire import INT_MAX, LabelKey, LabelValue, Name, Request, Text

DECLARED_MAX = 20_000  # of one noun at once
PORTS_MAX = 16
RESERVED_MAX = 64


def no_id(name: str) -> str:
    """Names and ids stand in the same places, so a name never looks like an id."""
    try:
        UUID(name)
    except ValueError:
        return name
    raise ValueError("a name must not look like a UUID")


Bytes = Annotated[int, Field(ge=0, le=INT_MAX)]
Small = Annotated[int, Field(ge=0, le=32_767)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]
PortNumber = Annotated[int, Field(ge=0, le=255)]
OwnName = Annotated[Name, AfterValidator(no_id)]
Reserved = Annotated[
    str, StringConstraints(max_length=260, pattern=r"^(cluster|tenant):[A-Za-z0-9]([A-Za-z0-9._:-]*)$")
]


class FabricFacts(Request):
    """What one driver endpoint manages. `serve` fills in the endpoint of the simulator it starts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"driver": "simulator", "endpoint": "simulator:/var/lib/rack", "admin_state": "paused"}]
        }
    )

    name: OwnName | None = Field(None, description="The path's, if it is given.")
    driver: Name
    endpoint: Text | None = Field(None, description="Left out: as it is. A new fabric needs one.")
    admin_state: Literal["active", "paused", "maintenance"] | None = Field(
        None, description="Unless `active`, nothing that changes hardware is sent. Left out: as it is."
    )


class FabricDeclaration(FabricFacts):
    name: OwnName


class PoolFacts(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "mld", "tier": "high"}]})

    name: OwnName | None = Field(None, description="The path's, if it is given.")
    kind: Literal["sld", "mld", "dcd"]
    tier: Name | None = None
    labels: Labels = Field(default_factory=dict)


class PoolDeclaration(PoolFacts):
    name: OwnName


class DeviceFacts(Request):
    """Facts that hardware does not tell; `serial` says which device they are about."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "serial": "SIM-MLD-0000",
                    "fabric": "rack-0",
                    "pool": "high-performance",
                    "bandwidth_bytes_per_s": 64000000000,
                    "latency_ns": 250,
                    "reserved_for": ["cluster:prod"],
                }
            ]
        }
    )

    name: OwnName | None = Field(None, description="The path's, if it is given.")
    serial: Text = Field(description="Another one under a known name replaces the device, if nothing on it is live.")
    fabric: Name
    pool: Name
    tier: Name | None = Field(None, description="Left out: the pool's.")
    media: Name | None = None
    failure_domain: Name | None = None
    labels: Labels = Field(default_factory=dict)
    bandwidth_bytes_per_s: Bytes = 0
    latency_ns: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0
    reserved_for: Annotated[list[Reserved], Field(max_length=RESERVED_MAX)] = Field(
        default_factory=list,
        description="`cluster:<name>` and `tenant:<name>`: nobody else gets anything new from it. Empty: everybody.",
    )


class DeviceDeclaration(DeviceFacts):
    name: OwnName


class HostPortDeclaration(Request):
    switch: Name
    port: PortNumber


class KubernetesNode(Request):
    cluster: Text
    node: Text
    node_uid: Text | None = None


class HostLimits(Request):
    vppbs: Small | None = None
    decoders: Small | None = None


class HostFacts(Request):
    """A machine and the upstream ports it hangs on; hardware cannot tell which server that is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"ports": [{"switch": "sw-0", "port": 3}], "kubernetes": {"cluster": "prod", "node": "node-3"}}
            ]
        }
    )

    name: OwnName | None = Field(None, description="The path's, if it is given.")
    ports: Annotated[list[HostPortDeclaration], Field(max_length=PORTS_MAX)] = Field(default_factory=list)
    kubernetes: KubernetesNode | None = None
    limits: HostLimits | None = None
    labels: Labels = Field(default_factory=dict)


class HostDeclaration(HostFacts):
    name: OwnName


class Inventory(Request):
    """Everything declared at once, in the order in which the parts refer to each other."""

    fabrics: Annotated[list[FabricDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
    pools: Annotated[list[PoolDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
    devices: Annotated[list[DeviceDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
    hosts: Annotated[list[HostDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
