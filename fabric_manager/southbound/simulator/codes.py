"""The command opcodes and return codes the simulated rack speaks. Source: CXL r3.1 §7.6.7 and §8.2.9."""

from collections.abc import Mapping
from enum import IntEnum


class Code(IntEnum):
    SUCCESS = 0x0000
    BACKGROUND_STARTED = 0x0001  # accepted, not done
    INVALID_INPUT = 0x0002
    UNSUPPORTED = 0x0003
    INTERNAL_ERROR = 0x0004
    RETRY_REQUIRED = 0x0005
    BUSY = 0x0006
    MEDIA_DISABLED = 0x0007
    INVALID_PHYSICAL_ADDRESS = 0x000F
    PERMANENT_MEDIA_FAILURE = 0x0011
    ABORTED = 0x0012
    RESOURCES_EXHAUSTED = 0x001D
    INVALID_EXTENT_LIST = 0x001E


class Opcode(IntEnum):
    IDENTIFY = 0x0001
    BACKGROUND_STATUS = 0x0002
    ABORT_BACKGROUND = 0x0005
    SANITIZE = 0x4400
    IDENTIFY_SWITCH = 0x5100
    PORT_STATES = 0x5101
    VCS_INFO = 0x5200
    BIND = 0x5201
    UNBIND = 0x5202
    LD_INFO = 0x5400
    GET_LD_ALLOCATIONS = 0x5401
    SET_LD_ALLOCATIONS = 0x5402
    GET_QOS_SHARE = 0x5406
    SET_QOS_SHARE = 0x5407
    GET_QOS_LIMIT = 0x5408
    SET_QOS_LIMIT = 0x5409
    DCD_INFO = 0x5600
    DC_REGIONS = 0x5601
    GET_EXTENTS = 0x5603
    ADD_CAPACITY = 0x5604
    RELEASE_CAPACITY = 0x5605


COMMAND_NAMES: Mapping[Opcode, str] = {
    Opcode.IDENTIFY: "Identify",
    Opcode.BACKGROUND_STATUS: "Background Operation Status",
    Opcode.ABORT_BACKGROUND: "Request Abort Background Operation",
    Opcode.SANITIZE: "Sanitize",
    Opcode.IDENTIFY_SWITCH: "Identify Switch Device",
    Opcode.PORT_STATES: "Get Physical Port State",
    Opcode.VCS_INFO: "Get Virtual CXL Switch Info",
    Opcode.BIND: "Bind vPPB",
    Opcode.UNBIND: "Unbind vPPB",
    Opcode.LD_INFO: "Get LD Info",
    Opcode.GET_LD_ALLOCATIONS: "Get LD Allocations",
    Opcode.SET_LD_ALLOCATIONS: "Set LD Allocations",
    Opcode.GET_QOS_SHARE: "Get QoS Allocated BW",
    Opcode.SET_QOS_SHARE: "Set QoS Allocated BW",
    Opcode.GET_QOS_LIMIT: "Get QoS BW Limit",
    Opcode.SET_QOS_LIMIT: "Set QoS BW Limit",
    Opcode.DCD_INFO: "Get DCD Info",
    Opcode.DC_REGIONS: "Get Host DC Region Configuration",
    Opcode.GET_EXTENTS: "Get DC Region Extent Lists",
    Opcode.ADD_CAPACITY: "Initiate Dynamic Capacity Add",
    Opcode.RELEASE_CAPACITY: "Initiate Dynamic Capacity Release",
}

BACKGROUND: frozenset[Opcode] = frozenset({Opcode.BIND, Opcode.UNBIND, Opcode.SANITIZE})

CHANGING: frozenset[Opcode] = BACKGROUND | {
    Opcode.ABORT_BACKGROUND,
    Opcode.SET_LD_ALLOCATIONS,
    Opcode.SET_QOS_SHARE,
    Opcode.SET_QOS_LIMIT,
    Opcode.ADD_CAPACITY,
    Opcode.RELEASE_CAPACITY,
}


class CommandError(Exception):
    """The component answers with `code` and has changed nothing; the message is for people."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
