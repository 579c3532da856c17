"""What people declare of a fabric: strict models, the same for the topology file and the API."""

from typing import Annotated, Literal

from pydantic import Field

from fabric_manager.api.wire import INT_MAX, LabelKey, LabelValue, Name, Request, Text

DECLARED_MAX = 20_000  # of one noun at once
PORTS_MAX = 16

Bytes = Annotated[int, Field(ge=0, le=INT_MAX)]
Small = Annotated[int, Field(ge=0, le=32_767)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]
PortNumber = Annotated[int, Field(ge=0, le=255)]


class FabricDeclaration(Request):
    """What one driver endpoint manages. The simulator's endpoint is filled in at start."""

    name: Name
    driver: Name
    endpoint: Text | None = None


class PoolDeclaration(Request):
    name: Name
    kind: Literal["sld", "mld", "dcd"]
    tier: Name | None = None
    labels: Labels = Field(default_factory=dict)


class DeviceDeclaration(Request):
    """Facts that hardware does not tell; `serial` says which device they are about."""

    name: Name
    serial: Text
    fabric: Name
    pool: Name
    tier: Name | None = None
    media: Name | None = None
    failure_domain: Name | None = None
    labels: Labels = Field(default_factory=dict)
    bandwidth_bytes_per_s: Bytes = 0
    latency_ns: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0


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


class HostDeclaration(Request):
    """A machine and the upstream ports it hangs on; hardware cannot tell which server that is."""

    name: Name
    ports: Annotated[list[HostPortDeclaration], Field(max_length=PORTS_MAX)] = Field(default_factory=list)
    kubernetes: KubernetesNode | None = None
    limits: HostLimits | None = None
    labels: Labels = Field(default_factory=dict)


class Inventory(Request):
    """Everything declared at once, in the order in which the parts refer to each other."""

    fabrics: Annotated[list[FabricDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
    pools: Annotated[list[PoolDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
    devices: Annotated[list[DeviceDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
    hosts: Annotated[list[HostDeclaration], Field(max_length=DECLARED_MAX)] = Field(default_factory=list)
