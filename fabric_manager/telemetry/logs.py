"""Logs: one line an event, with the fields that `extra` carries and those of the work it happened in."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
NOISY = ("httpx", "httpcore", "uvicorn.access", "alembic")
NOTHING: Mapping[str, Any] = MappingProxyType({})

# What the task at hand is about: request_id, actor and key of a request; operation, key and fabric of a goal.
_subject: ContextVar[Mapping[str, Any]] = ContextVar("subject_of_logs", default=NOTHING)


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Every line logged in the block carries `fields`, those of tasks it starts too. None is left out."""
    token = _subject.set(_with(fields))
    try:
        yield
    finally:
        _subject.reset(token)


def note(**fields: Any) -> None:
    """As `about`, until the block or task around it ends: for what is learned on the way."""
    _subject.set(_with(fields))


def _with(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_subject.get(), **{name: value for name, value in fields.items() if value is not None}}


class Subject(logging.Filter):
    """Adds what the task is about; what the line itself says goes first."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _subject.get().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in PLAIN}


def instant_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": instant_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """For eyes: the same facts, a stack below its line."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        line = f"{instant_of(record)} {record.levelname} {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


FORMATS: Mapping[str, type[logging.Formatter]] = {"json": JsonLines, "text": TextLines}


def configure_logging(level: str, log_format: str = "json") -> None:
    """To standard error, so that standard output stays for what a person or script asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[log_format]())
    handler.addFilter(Subject())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
