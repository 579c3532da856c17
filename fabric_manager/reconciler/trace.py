"""Frames of the step that runs, for the timeline. Polls of the same thing are kept once, first and last."""

from contextvars import ContextVar
from dataclasses import asdict
from typing import Any

from fabric_manager.southbound.driver import Frame
from fabric_manager.telemetry import metrics

FRAMES_PER_STEP_MAX = 64
# Return codes of CXL r3.1 table 8-37, as far as they differ in what happens next; any other is an error.
OUTCOMES = {None: "no_answer", 0x0000: "success", 0x0001: "background_started", 0x0005: "busy", 0x0006: "busy"}

current: ContextVar[list[Frame] | None] = ContextVar("frames_of_step", default=None)


def collect(frame: Frame) -> None:
    """The FrameSink given to drivers. Frames outside a step (scans) are counted and not kept."""
    count(frame)
    frames = current.get()
    if frames is None:
        return
    if len(frames) >= 2 and same_question(frames[-1], frame) and same_question(frames[-2], frame):
        frames[-1] = frame
    elif len(frames) < FRAMES_PER_STEP_MAX:
        frames.append(frame)


def count(frame: Frame) -> None:
    opcode = f"{frame.opcode:04x}"
    metrics.HARDWARE_COMMANDS.labels(opcode=opcode, outcome=OUTCOMES.get(frame.return_code, "error")).inc()
    if frame.answered_at is not None:
        metrics.HARDWARE_SECONDS.labels(opcode=opcode).observe((frame.answered_at - frame.sent_at).total_seconds())


def same_question(one: Frame, other: Frame) -> bool:
    return (one.component, one.opcode, one.request) == (other.component, other.opcode, other.request)


def row(frame: Frame) -> dict[str, Any]:
    return asdict(frame) | {"request_raw": frame.request_raw.hex(), "response_raw": frame.response_raw.hex()}
