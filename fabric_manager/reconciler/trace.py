"""Frames of the step that runs, for the timeline. Polls of the same thing are kept once, first and last."""

from contextvars import ContextVar
from dataclasses import asdict
from typing import Any

from fabric_manager.southbound.driver import Frame

FRAMES_PER_STEP_MAX = 64

current: ContextVar[list[Frame] | None] = ContextVar("frames_of_step", default=None)


def collect(frame: Frame) -> None:
    """The FrameSink given to drivers. Frames outside a step (scans) are not kept."""
    frames = current.get()
    if frames is None:
        return
    if len(frames) >= 2 and same_question(frames[-1], frame) and same_question(frames[-2], frame):
        frames[-1] = frame
    elif len(frames) < FRAMES_PER_STEP_MAX:
        frames.append(frame)


def same_question(one: Frame, other: Frame) -> bool:
    return (one.component, one.opcode, one.request) == (other.component, other.opcode, other.request)


def row(frame: Frame) -> dict[str, Any]:
    return asdict(frame) | {"request_raw": frame.request_raw.hex(), "response_raw": frame.response_raw.hex()}
