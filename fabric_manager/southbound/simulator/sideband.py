"""The control channel: what an operator, a test or the demo does to the rack past its hardware commands."""

from collections.abc import Callable, Mapping
from typing import Any

from fabric_manager.southbound.simulator.clock import RackClock
from fabric_manager.southbound.simulator.codes import Code, CommandError
from fabric_manager.southbound.simulator.commands import Reply
from fabric_manager.southbound.simulator.dcd import Dcd
from fabric_manager.southbound.simulator.device import Device
from fabric_manager.southbound.simulator.faults import Knob, rule_from_json
from fabric_manager.southbound.simulator.hosts import Host, OnOffer, OnRelease
from fabric_manager.southbound.simulator.journal import Journal
from fabric_manager.southbound.simulator.rack import Rack
from fabric_manager.southbound.simulator.switch import Target

Args = dict[str, Any]
HEALTH_WORDS = ("ok", "degraded", "failed")


class Sideband:
    """One method an operation; the arguments come as they were sent."""

    def __init__(self, *, rack: Rack, clock: RackClock, journal: Journal, identity: dict[str, Any]) -> None:
        """`identity` is what ping answers: pid and boot."""
        self._rack = rack
        self._clock = clock
        self._journal = journal
        self._identity = identity

    def execute(self, op: str, args: Args) -> Reply:
        if op not in OPERATIONS:
            return Reply(Code.UNSUPPORTED, detail=f"no operation {op!r}; know {', '.join(OPERATIONS)}")
        try:
            return Reply(Code.SUCCESS, OPERATIONS[op](self, args) or {})
        except CommandError as error:
            return Reply(error.code, detail=str(error))
        except (KeyError, ValueError, TypeError) as error:
            return Reply(Code.INVALID_INPUT, detail=f"{type(error).__name__}: {error}")

    def ping(self, _: Args) -> Args:
        return self._identity

    def journal(self, args: Args) -> Args:
        return {"entries": self._journal.since(args.get("since", 0))}

    def get_faults(self, _: Args) -> Args:
        return self._rack.faults.snapshot()

    def put_faults(self, args: Args) -> Args:
        """All rules and knobs at once; nothing changes when one of them cannot be read."""
        self._rack.faults.restore({"rules": args.get("rules", []), "knobs": args.get("knobs", [])})
        return self._rack.faults.snapshot()

    def add_fault(self, args: Args) -> None:
        self._rack.faults.add(rule_from_json(args))

    def set_knobs(self, args: Args) -> None:
        self._rack.faults.knobs = frozenset(Knob(knob) for knob in args["knobs"])

    def get_clock(self, _: Args) -> Args:
        return {"now_s": self._clock.now_s(), "speed": self._clock.speed}

    def set_clock(self, args: Args) -> Args:
        self._clock.set_speed(float(args["speed"]))
        return self.get_clock(args)

    def step_clock(self, args: Args) -> Args:
        self._clock.step(float(args["seconds"]))
        self._rack.advance(self._clock.now_s())
        return self.get_clock(args)

    def get_host(self, args: Args) -> Args:
        return self._rack.host(args["host"]).snapshot()

    def set_host(self, args: Args) -> Args:
        """Change the behavior; the host then looks again at whatever it has not answered."""
        host = self._rack.host(args["host"])
        on_offer = OnOffer(args.get("on_offer", host.on_offer))
        on_release = OnRelease(args.get("on_release", host.on_release))
        answer_s = float(args.get("answer_s", host.answer_s))
        if answer_s < 0:
            raise ValueError("no host answers before it was asked")
        host.on_offer, host.on_release, host.answer_s = on_offer, on_release, answer_s
        self._look_again(host)
        return host.snapshot()

    def set_online(self, args: Args) -> None:
        """`memory` is a tag, or "serial/ld"."""
        host = self._rack.host(args["host"])
        if args["online"]:
            host.online.add(str(args["memory"]))
        else:
            host.online.discard(str(args["memory"]))
        self._look_again(host)

    def give_back(self, args: Args) -> None:
        """The host gives back what carries `tag`, now; refused while it has it online."""
        host = self._rack.host(args["host"])
        if args["tag"] in host.online:
            raise CommandError(Code.RETRY_REQUIRED, f"{host.name} has {args['tag']} online")
        for device, ld_id in self._rack.interfaces_of(host):
            if any(extent.tag == args["tag"] for extent in device.spaces[ld_id]):
                device.give_back(host=ld_id, tag=args["tag"], now_s=self._clock.now_s())
                return self._rack.touch(device.plan.name)
        raise CommandError(Code.INVALID_INPUT, f"{host.name} has nothing with tag {args['tag']}")

    def host_read(self, args: Args) -> Args:
        data = self._rack.host_read(
            args["host"],
            serial=args["device"],
            ld_id=args["ld_id"],
            address=args["address"],
            size_bytes=args["size_bytes"],
        )
        return {"data": data.hex()}

    def host_write(self, args: Args) -> None:
        data = bytes.fromhex(args["data"])
        self._rack.host_write(
            args["host"], serial=args["device"], ld_id=args["ld_id"], address=args["address"], data=data
        )

    def bind(self, args: Args) -> None:
        """Out of band and unchecked: how drift, and two hosts on one LD, come about."""
        switch = self._rack.switch(args["switch"])
        switch.connect((args["vcs"], args["vppb"]), Target(args["port"], args["ld_id"]))
        self._rack.touch(switch.plan.name)

    def unbind(self, args: Args) -> None:
        switch = self._rack.switch(args["switch"])
        switch.cut((args["vcs"], args["vppb"]))
        self._rack.touch(switch.plan.name)

    def restart(self, args: Args) -> None:
        volatile = bool(args.get("volatile", False))
        self._rack.restart(args.get("component", "*"), volatile=volatile, now_s=self._clock.now_s())

    def replace_device(self, args: Args) -> None:
        device, serial = self._rack.device(args["device"]), str(args["serial"])
        device.replace(serial, now_s=self._clock.now_s())
        self._rack.touch(device.plan.name)

    def set_health(self, args: Args) -> None:
        if args["health"] not in HEALTH_WORDS:
            raise ValueError(f"health is one of {', '.join(HEALTH_WORDS)}")
        device = self._rack.device(args["device"])
        device.health = args["health"]
        self._rack.touch(device.plan.name)

    def state(self, _: Args) -> Args:
        """Everything, for a look from outside: bindings, LDs, extents, hosts."""
        return {
            "switches": {name: switch.snapshot() for name, switch in self._rack.switches.items()},
            "devices": {name: _device_shown(device) for name, device in self._rack.devices.items()},
            "hosts": {
                name: {**host.snapshot(), "ports": sorted(host.ports)} for name, host in self._rack.hosts.items()
            },
        }

    def _look_again(self, host: Host) -> None:
        self._rack.touch(host.name)
        for device, ld_id in self._rack.interfaces_of(host):
            device.ask_again(host=ld_id, now_s=self._clock.now_s())


def _device_shown(device: Device) -> Args:
    shown = {**device.snapshot(), "port": [device.plan.switch, device.plan.port]}
    if isinstance(device, Dcd):
        shown["free_bytes"] = device.blocks.free_bytes
        shown["spaces"] = {str(host): [e.shown() for e in space] for host, space in device.spaces.items()}
    return shown


Operation = Callable[[Sideband, Args], Args | None]
OPERATIONS: Mapping[str, Operation] = {
    name: value for name, value in vars(Sideband).items() if not name.startswith("_") and name != "execute"
}
