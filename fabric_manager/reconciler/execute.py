"""Do one step, and say what came of it. Every step may safely run twice."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabric_manager.reconciler.observe import read_vppb
from fabric_manager.reconciler.plan import HELD, Do, StepKind, Wanted, need_place
from fabric_manager.southbound.driver import (
    BackgroundStatus,
    BusyError,
    FabricDriver,
    OutcomeUnknownError,
    RefusedError,
    UnbindOption,
    UnreachableError,
    VppbState,
)

POLL_S = 0.02
POLL_S_MAX = 0.5
SWITCH_OPERATION_S_MAX = 10.0  # binds take milliseconds; one that takes longer is read again later
OPCODE_SANITIZE = 0x4400

Progress = Callable[[int], Awaitable[None]]  # told percent; raises EpochLostError when the fabric is no longer ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`word` is done, refused, busy or unknown; `evidence` is how the bytes were erased, when this step erased them."""

    word: str
    observed: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] | None = None


async def execute(step: Do, wanted: Wanted, driver: FabricDriver, *, progress: Progress) -> Outcome:
    """Send what `step` says and wait for the component's own result, which a later read confirms.

    Raises UnreachableError when nothing was sent.
    """
    try:
        return await STEPS[step.step](step, wanted, driver, progress)
    except BusyError as error:
        return Outcome(word="busy", observed={"detail": str(error)})
    except RefusedError as error:
        return Outcome(word="refused", observed={"detail": str(error), "code": error.code})
    except OutcomeUnknownError as error:
        return Outcome(word="unknown", observed={"detail": str(error)})


async def bind(step: Do, _wanted: Wanted, driver: FabricDriver, _progress: Progress) -> Outcome:
    intent = step.intent
    await driver.bind(
        step.component, vcs=intent["vcs"], vppb=intent["vppb"], port=intent["port"], ld_id=intent["ld_id"]
    )
    return await switch_result(driver, step.component)


async def unbind(step: Do, _wanted: Wanted, driver: FabricDriver, _progress: Progress) -> Outcome:
    option = UnbindOption(step.intent["option"])
    await driver.unbind(step.component, vcs=step.intent["vcs"], vppb=step.intent["vppb"], option=option)
    return await switch_result(driver, step.component)


async def offer(step: Do, wanted: Wanted, driver: FabricDriver, _progress: Progress) -> Outcome:
    await driver.offer_extents(
        wanted.serial,
        host_ld=step.intent["host_ld"],
        tag=wanted.segment_id,
        region=step.intent["region"],
        spans=[(start, size) for start, size in step.intent["spans"]],
    )
    return Outcome(word="done")


async def withdraw(step: Do, wanted: Wanted, driver: FabricDriver, progress: Progress) -> Outcome:
    """Forced, which is safe for what the host does not have. That it has not is read once more right before."""
    host_ld = step.intent["host_ld"]
    vppb = await read_vppb(driver, need_place(wanted))
    extents = await driver.read_extents(wanted.serial, host_ld=host_ld)
    held = any(extent.tag == wanted.segment_id and extent.state in HELD for extent in extents)
    if held and (vppb is None or vppb.state is not VppbState.FREE):
        return Outcome(word="busy", observed={"detail": "the host answered the offer meanwhile"})
    await progress(0)  # the read took time: is the fabric still ours?
    await driver.release_extents(wanted.serial, host_ld=host_ld, tag=wanted.segment_id, sanitize=True, forced=True)
    return Outcome(word="done")


async def release(step: Do, wanted: Wanted, driver: FabricDriver, _progress: Progress) -> Outcome:
    await driver.release_extents(
        wanted.serial,
        host_ld=step.intent["host_ld"],
        tag=wanted.segment_id,
        sanitize=step.intent["sanitize"],
        forced=False,
    )
    return Outcome(word="done")


async def sanitize(_step: Do, wanted: Wanted, driver: FabricDriver, progress: Progress) -> Outcome:
    """From zero, whatever an earlier process began: only an erasure watched from start to end is evidence."""
    if wanted.ld_id is None:
        raise RefusedError("erasing a whole device is not offered by this driver")
    before = await driver.device_background(wanted.serial)
    if before.in_progress:
        raise BusyError(f"the device is at {before.percent} % of operation {before.opcode:#06x}")
    await progress(0)  # the read took time: is the fabric still ours?
    await driver.sanitize_ld(wanted.serial, ld_id=wanted.ld_id)
    after = await finished(lambda: driver.device_background(wanted.serial), progress)
    seen = {"opcode": after.opcode, "return_code": after.return_code, "ld_id": after.ld_id}
    ours = after.opcode == OPCODE_SANITIZE and after.ld_id in (None, wanted.ld_id)
    if not ours or after.boot_count != before.boot_count:
        return Outcome(word="unknown", observed=seen | {"detail": "the device forgot the operation"})
    if after.return_code:
        return Outcome(word="refused", observed=seen)
    return Outcome(word="done", observed=seen, evidence={"method": "completion", "read_back": seen})


async def prove(step: Do, wanted: Wanted, driver: FabricDriver, _progress: Progress) -> Outcome:
    """What erases began in this life of the device, and the extents are gone."""
    extents = await driver.read_extents(wanted.serial, host_ld=need_ld(wanted))
    if any(extent.tag == wanted.segment_id for extent in extents):
        return Outcome(word="busy", observed={"detail": "the device still lists the memory"})
    # The life of the device last: had it restarted before the extents were read, they would be gone unerased.
    if not await same_life(step, wanted, driver):
        return Outcome(word="unknown", observed={"detail": "the device restarted meanwhile"})
    seen = {
        "extents": 0,
        "boot_count": step.intent["boot_count"],
        "sanitize_on_release": wanted.sanitize_on_release,
        "offered": wanted.exposed,
    }
    return Outcome(word="done", observed=seen, evidence={"method": step.intent["method"], "read_back": seen})


async def watch(step: Do, wanted: Wanted, driver: FabricDriver, _progress: Progress) -> Outcome:
    """The erasure that was seen goes on in this life of the device, so that its end can be believed."""
    if not await same_life(step, wanted, driver):
        return Outcome(word="unknown", observed={"detail": "the device restarted meanwhile"})
    return Outcome(word="done", observed={"boot_count": step.intent["boot_count"]})


async def same_life(step: Do, wanted: Wanted, driver: FabricDriver) -> bool:
    status = await driver.device_background(wanted.serial)
    return bool(status.boot_count == step.intent["boot_count"])


Act = Callable[[Do, Wanted, FabricDriver, Progress], Awaitable[Outcome]]

STEPS: Mapping[StepKind, Act] = {
    StepKind.BIND: bind,
    StepKind.UNBIND: unbind,
    StepKind.OFFER: offer,
    StepKind.WITHDRAW: withdraw,
    StepKind.RELEASE: release,
    StepKind.SANITIZE: sanitize,
    StepKind.WATCH: watch,
    StepKind.PROVE: prove,
}


async def switch_result(driver: FabricDriver, switch: str) -> Outcome:
    """The result of the switch's background operation; "accepted" is not yet a result."""
    deadline = time.monotonic() + SWITCH_OPERATION_S_MAX

    async def poll() -> BackgroundStatus:
        if time.monotonic() > deadline:
            raise OutcomeUnknownError(f"{switch} is still at it after {SWITCH_OPERATION_S_MAX} s")
        return await driver.switch_background(switch)

    status = await finished(poll, no_progress)
    seen = {"opcode": status.opcode, "return_code": status.return_code}
    return Outcome(word="refused" if status.return_code else "done", observed=seen)


async def finished(poll: Callable[[], Awaitable[BackgroundStatus]], progress: Progress) -> BackgroundStatus:
    """Poll until the slot is idle. A component that cannot be asked leaves the outcome unknown."""
    pause_s = POLL_S
    while True:
        try:
            status = await poll()
        except UnreachableError as error:
            raise OutcomeUnknownError(str(error)) from error
        if not status.in_progress or status.opcode == 0:
            return status
        await progress(status.percent)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, POLL_S_MAX)


async def no_progress(_percent: int) -> None:
    """Switch operations are too short to report on."""


def need_ld(wanted: Wanted) -> int:
    ld_id = need_place(wanted).ld_id
    if ld_id is None:
        raise ValueError(f"segment {wanted.segment_id} has no host interface")
    return ld_id
