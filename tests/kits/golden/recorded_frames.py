"""Recorded conversations of Java peers, frame by frame."""

import base64
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flintmq.format.wire.command import Command, decode_command
from flintmq.format.wire.frame import Frame, FrameDecoder

FRAMES: Final = Path(__file__).parents[2] / "golden" / "data" / "frames"

CONVERSATIONS: Final = tuple(
    path.relative_to(FRAMES).with_suffix("").as_posix()
    for path in sorted(FRAMES.glob("*/*.jsonl"))
    # The replication port has a notation of its own.
    if path.stem != "ha-stream"
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of a conversation and the bytes it stands for."""

    line: dict[str, Any]
    raw: bytes

    @property
    def command(self) -> Command:
        return decode_command(decode(self.raw))

    @property
    def ext_fields(self) -> dict[str, str]:
        """The recorded ext fields; a null is the empty text of the binary notation."""
        fields = self.line["header"].get("extFields") or {}
        return {key: value or "" for key, value in fields.items()}


@functools.cache
def conversation(name: str) -> tuple[Recorded, ...]:
    text = (FRAMES / f"{name}.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    return tuple(Recorded(line, base64.b64decode(line["raw"])) for line in lines)


def decode(raw: bytes) -> Frame:
    decoder = FrameDecoder()
    decoder.feed(raw)
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.next_frame() is None
    assert decoder.pending_size == 0
    return frame
