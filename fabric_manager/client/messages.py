"""The messages of a text/event-stream."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from fabric_manager.client.errors import UnexpectedAnswerError

MESSAGE_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`id` is empty when the message has none; `data` keeps its line breaks."""

    event: str
    id: str
    data: str


async def messages(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Message, None]:
    """Each whole message; one that was cut off is left out, as the standard has it. Raises UnexpectedAnswerError."""
    rest = b""
    lines: list[bytes] = []
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line := line.removesuffix(b"\r"):
                lines.append(line)
            else:
                if message := _message(lines):
                    yield message
                lines = []
        if len(rest) + sum(map(len, lines)) > MESSAGE_BYTES_MAX:
            raise UnexpectedAnswerError(f"a message of the stream is longer than {MESSAGE_BYTES_MAX} bytes")


def _message(lines: list[bytes]) -> Message | None:
    """None for a comment."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.decode(errors="replace").partition(":")
        fields.setdefault(name, []).append(value.removeprefix(" "))
    if "data" not in fields:
        return None
    last = {name: values[-1] for name, values in fields.items()}
    return Message(event=last.get("event", "message"), id=last.get("id", ""), data="\n".join(fields["data"]))
