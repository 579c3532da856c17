"""The hardware channel: each opcode, and what the rack does for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabric_manager.southbound.driver import UnbindOption
from fabric_manager.southbound.simulator.codes import BACKGROUND, CHANGING, Code, CommandError, Opcode
from fabric_manager.southbound.simulator.rack import Rack

Args = dict[str, Any]
Handler = Callable[[Rack, str, Args, float], dict[str, Any] | None]
EVERYTHING = "*"  # Identify of this component lists all others


@dataclass(frozen=True, slots=True)
class Reply:
    code: int
    result: dict[str, Any] = field(default_factory=dict)
    detail: str = ""  # for people; real hardware gives none


def execute(rack: Rack, opcode: int, component: str, args: Args, *, now_s: float) -> Reply:
    """Whatever was sent, the answer is a return code."""
    try:
        result = HANDLERS[Opcode(opcode)](rack, component, args, now_s) or {}
    except CommandError as error:
        return Reply(error.code, detail=str(error))
    except (KeyError, ValueError, TypeError) as error:
        code = Code.INVALID_INPUT if opcode in HANDLERS else Code.UNSUPPORTED
        return Reply(code, detail=f"{type(error).__name__}: {error}")
    if opcode in CHANGING:
        rack.touch(rack.component(component).plan.name)
    return Reply(Code.BACKGROUND_STARTED if opcode in BACKGROUND else Code.SUCCESS, result)


def pretend(rack: Rack, opcode: int, component: str, args: Args, *, now_s: float) -> Reply:
    """Answer as if it had worked, and do nothing. Answers that repeat the request repeat it."""
    if opcode not in BACKGROUND:
        return Reply(Code.SUCCESS, args)
    try:
        slot = rack.component(component).slot
        slot.pretend(Opcode(opcode), ld_id=args.get("ld_id"))
    except CommandError as error:
        return Reply(error.code, detail=str(error))
    rack.advance(now_s)
    return Reply(Code.BACKGROUND_STARTED)


def _identify(rack: Rack, component: str, _: Args, __: float) -> dict[str, Any]:
    if component != EVERYTHING:
        part = rack.component(component)
        return part.identify()
    return {"switches": list(rack.switches), "devices": [device.serial for device in rack.devices.values()]}


def _abort(rack: Rack, component: str, _: Args, __: float) -> None:
    rack.component(component).slot.abort()


def _background(rack: Rack, component: str, _: Args, now_s: float) -> dict[str, Any]:
    part = rack.component(component)
    return {**part.slot.status(now_s), "boot_count": part.boot_count}


def _bind(rack: Rack, component: str, args: Args, now_s: float) -> None:
    rack.switch(component).bind(vcs=args["vcs"], vppb=args["vppb"], port=args["port"], ld_id=args["ld_id"], now_s=now_s)


def _unbind(rack: Rack, component: str, args: Args, now_s: float) -> None:
    option = UnbindOption(args["option"])
    rack.switch(component).unbind(vcs=args["vcs"], vppb=args["vppb"], option=option, now_s=now_s)


def _set_allocations(rack: Rack, component: str, args: Args, _: float) -> dict[str, Any]:
    return rack.mld(component).set_allocations(start=args["start"], multipliers=args["multipliers"])


def _get_qos(what: str) -> Handler:
    return lambda rack, component, args, _: rack.device(component).get_qos(
        what, start=args["start"], count=args["count"]
    )


def _set_qos(what: str) -> Handler:
    return lambda rack, component, args, _: rack.device(component).set_qos(
        what, start=args["start"], fractions=args["fractions"]
    )


def _add(rack: Rack, component: str, args: Args, now_s: float) -> None:
    spans = [(start, size) for start, size in args["extents"]]
    rack.dcd(component).offer(host=args["host"], tag=args["tag"], region=args["region"], spans=spans, now_s=now_s)


def _release(rack: Rack, component: str, args: Args, now_s: float) -> None:
    rack.dcd(component).release(
        host=args["host"], tag=args["tag"], sanitize=args["sanitize"], forced=args["forced"], now_s=now_s
    )


HANDLERS: Mapping[Opcode, Handler] = {
    Opcode.IDENTIFY: _identify,
    Opcode.BACKGROUND_STATUS: _background,
    Opcode.ABORT_BACKGROUND: _abort,
    Opcode.SANITIZE: lambda rack, component, args, now_s: rack.mld(component).sanitize(args["ld_id"], now_s=now_s),
    Opcode.IDENTIFY_SWITCH: lambda rack, component, _, __: rack.switch(component).identify(),
    Opcode.PORT_STATES: lambda rack, component, _, __: rack.switch(component).port_states(),
    Opcode.VCS_INFO: lambda rack, component, args, _: rack.switch(component).vcs_info(args["vcs"]),
    Opcode.BIND: _bind,
    Opcode.UNBIND: _unbind,
    Opcode.LD_INFO: lambda rack, component, _, __: rack.mld(component).ld_info(),
    Opcode.GET_LD_ALLOCATIONS: lambda rack, component, args, _: rack.device(component).allocations(start=args["start"]),
    Opcode.SET_LD_ALLOCATIONS: _set_allocations,
    Opcode.GET_QOS_SHARE: _get_qos("share"),
    Opcode.SET_QOS_SHARE: _set_qos("share"),
    Opcode.GET_QOS_LIMIT: _get_qos("limit"),
    Opcode.SET_QOS_LIMIT: _set_qos("limit"),
    Opcode.DCD_INFO: lambda rack, component, _, __: rack.dcd(component).info(),
    Opcode.DC_REGIONS: lambda rack, component, args, _: rack.dcd(component).region_configuration(host=args["host"]),
    Opcode.GET_EXTENTS: lambda rack, component, args, _: rack.dcd(component).extent_list(host=args["host"]),
    Opcode.ADD_CAPACITY: _add,
    Opcode.RELEASE_CAPACITY: _release,
}
