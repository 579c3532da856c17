"""What the reconciler asks of hardware, and the four ways hardware may answer.

A driver keeps no truth of its own: each call either reads the component or asks it to change, and every change is
proven by a later read. Times are seconds, sizes bytes, bandwidth bytes per second; wire units stay inside the driver.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

LDS_PER_MLD_MAX = 16  # CXL r3.1: LD ids 0-15
MULTI_LOGICAL_NONE = 0xFFFF  # "the target is not an MLD" in Bind vPPB, 5201h


class DriverError(Exception):
    """Base of all a driver may raise; anything else out of a driver is a bug."""


class BusyError(DriverError):
    """Nothing changed: the component runs another command. Try again after a pause."""


class RefusedError(DriverError):
    """Nothing changed, and asking again unchanged will not help. `code` is the component's return code, if any."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class OutcomeUnknownError(DriverError):
    """It was sent and no answer came. Read the component before deciding anything."""


class UnreachableError(DriverError):
    """Nothing was sent: there is no connection. The component's state is as it was, as far as we can tell."""


class VppbState(StrEnum):
    FREE = "free"
    BUSY = "busy"  # a bind or unbind is in progress
    BOUND_PORT = "bound_port"
    BOUND_LD = "bound_ld"


class ExtentState(StrEnum):
    OFFERED = "offered"  # the host was told and has not answered; a driver that cannot see offers never reports it
    ACCEPTED = "accepted"  # the host has it
    RELEASE_REQUESTED = "release_requested"  # the host was asked to give it back and still has it
    SANITIZING = "sanitizing"  # no host can reach it; contents are being erased


class UnbindOption(StrEnum):
    WAIT_LINK_DOWN = "wait_link_down"
    MANAGED = "managed"
    SURPRISE = "surprise"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """One physical port. `role` is upstream, downstream, fabric or disabled; `device_serial` names what hangs on it."""

    number: int
    role: str
    device_serial: str | None = None
    link_width: int = 0
    link_width_max: int = 0
    link_speed_gt: int = 0
    link_speed_gt_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VppbFacts:
    number: int
    state: VppbState
    port: int | None = None
    ld_id: int | None = None  # None when bound to a whole port


@dataclass(frozen=True, slots=True, kw_only=True)
class VcsFacts:
    """One virtual CXL switch: the vPPBs that the host on `upstream_port` can be given devices through."""

    number: int
    upstream_port: int
    vppbs: tuple[VppbFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFacts:
    """`boot_count` changes whenever the switch restarted; None when the hardware cannot tell."""

    name: str
    serial: str
    hdm_decoders: int
    ports: tuple[PortFacts, ...]
    vcs: tuple[VcsFacts, ...]
    boot_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LdFacts:
    ld_id: int
    size_bytes: int
    share_n: int = 0  # QoS allocated bandwidth, n/256
    limit_n: int = 0  # QoS bandwidth limit, n/256


@dataclass(frozen=True, slots=True, kw_only=True)
class DcRegionFacts:
    """One dynamic-capacity region as each host sees it. Sizes in bytes."""

    number: int
    base_bytes: int
    size_bytes: int
    block_bytes: int
    sanitize_on_release: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A memory device. `serial` is its durable identity; what hardware does not tell is not here.

    `capabilities` uses the words of docs/drivers.md: ld_resize, qos, dc_prescriptive, dc_tag_release, sanitize_ld,
    sanitize_on_release, sanitize_range.
    """

    serial: str
    kind: str  # sld, mld, dcd
    switch: str
    port: int
    capacity_bytes: int
    granule_bytes: int
    lds_max: int  # LDs of an MLD, or host interfaces of a DCD
    lds: tuple[LdFacts, ...] = ()
    dc_regions: tuple[DcRegionFacts, ...] = ()
    capabilities: frozenset[str] = frozenset()
    health: str = "ok"  # ok, degraded, failed
    firmware: str = ""
    boot_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    switches: tuple[SwitchFacts, ...]
    devices: tuple[DeviceFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundStatus:
    """The one background slot of a component. Idle and `return_code` 0 says the last operation worked.

    `ld_id` names the LD the operation addresses and `boot_count` the component's life, where it tells.
    """

    in_progress: bool
    percent: int
    opcode: int  # 0 when the component has run none since it started
    return_code: int
    ld_id: int | None = None
    boot_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedExtent:
    """A run [start, start + size) in the DPA space of one host interface."""

    start_bytes: int
    size_bytes: int
    tag: UUID
    state: ExtentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One exchange with hardware, as the timeline shows it. `return_code` None: no answer came."""

    endpoint: str
    component: str
    opcode: int
    command: str
    request: dict[str, Any]
    response: dict[str, Any] | None
    return_code: int | None
    sent_at: datetime
    answered_at: datetime | None
    request_raw: bytes = b""
    response_raw: bytes = b""


FrameSink = Callable[[Frame], None]


class FabricDriver(Protocol):
    """One driver endpoint: a set of switches and the devices behind them.

    Every method may raise UnreachableError, BusyError, RefusedError or OutcomeUnknownError; reads never change
    anything and so raise OutcomeUnknownError as UnreachableError. Methods that start background work return once the
    component accepted it; `background` tells how it goes, and a read tells whether it worked. A switch is named by
    `SwitchFacts.name`, a device by `DeviceFacts.serial`.
    """

    endpoint: str

    async def close(self) -> None:
        """Drop the connection. Hardware is left as it is."""

    async def inventory(self) -> Inventory:
        """Everything behind the endpoint: 5100h, 5101h, 5200h, 5400h-5407h, 5600h, 5601h."""

    async def read_vcs(self, switch: str, *, vcs: int) -> VcsFacts:
        """5200h Get Virtual CXL Switch Info."""

    async def bind(self, switch: str, *, vcs: int, vppb: int, port: int, ld_id: int | None) -> None:
        """5201h Bind vPPB, in the background of the switch. `ld_id` None binds the whole port."""

    async def unbind(self, switch: str, *, vcs: int, vppb: int, option: UnbindOption) -> None:
        """5202h Unbind vPPB, in the background of the switch."""

    async def switch_background(self, switch: str) -> BackgroundStatus:
        """0002h Background Operation Status of the switch."""

    async def device_background(self, serial: str) -> BackgroundStatus:
        """0002h Background Operation Status of the device."""

    async def abort_background(self, serial: str) -> None:
        """0005h on the device: its operation ends with return code 0012h."""

    async def read_lds(self, serial: str) -> tuple[LdFacts, ...]:
        """5401h Get LD Allocations with 5406h and 5408h."""

    async def set_ld_sizes(self, serial: str, *, sizes_bytes: Sequence[int]) -> tuple[LdFacts, ...]:
        """5402h Set LD Allocations, LD 0 upwards; returns the table as it is afterwards. Refused while one is bound."""

    async def set_qos(self, serial: str, *, ld_id: int, share_n: int, limit_n: int) -> LdFacts:
        """5409h limit, then 5407h share, of one LD, in n/256; returns what the device now holds."""

    async def sanitize_ld(self, serial: str, *, ld_id: int) -> None:
        """4400h Sanitize through the tunnel to one LD, in the background of the device. Refused while it is bound."""

    async def read_extents(self, serial: str, *, host_ld: int) -> tuple[TaggedExtent, ...]:
        """5603h Get DC Region Extent Lists of one host interface, with offers and erasures where they are seen."""

    async def offer_extents(
        self, serial: str, *, host_ld: int, tag: UUID, region: int, spans: Sequence[tuple[int, int]]
    ) -> None:
        """5604h Initiate Dynamic Capacity Add, prescriptive; `spans` are (start_bytes, size_bytes).

        Completes when the offer is made; the host's answer shows in `read_extents`. Offering a tag that is offered or
        accepted already is one offer.
        """

    async def release_extents(self, serial: str, *, host_ld: int, tag: UUID, sanitize: bool, forced: bool) -> None:
        """5605h Initiate Dynamic Capacity Release of all that carries `tag`; the host gives it back later.

        `forced` takes it away at once: safe for an offer, a machine check for memory in use.
        """
