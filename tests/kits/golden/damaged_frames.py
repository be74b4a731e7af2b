"""Frames that Java peers exchanged, and ways to damage them."""

import base64
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from flintmq.format.wire.frame import PREFIX_SIZE

FRAMES: Final = Path(__file__).parents[2] / "golden" / "data" / "frames"
FRAME_COUNT_MIN: Final = 5000

Damage: TypeAlias = Callable[[bytearray, random.Random], None]


@functools.cache
def conversations() -> tuple[tuple[bytes, ...], ...]:
    """Return the frames of each recording, both directions in the order they went."""
    # The replication port has a notation of its own.
    paths = [path for path in sorted(FRAMES.glob("*/*.jsonl")) if path.stem != "ha-stream"]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return tuple(
        tuple(base64.b64decode(json.loads(line)["raw"]) for line in text.splitlines())
        for text in texts
    )


def recorded_frames() -> tuple[bytes, ...]:
    """Return all recorded frames."""
    frames = tuple(frame for frames in conversations() for frame in frames)
    assert len(frames) > FRAME_COUNT_MIN
    return frames


def flip_bits(wire: bytearray, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 4)):
        wire[dice.randrange(len(wire))] ^= 1 << dice.randrange(8)


def flip_header_bits(wire: bytearray, dice: random.Random) -> None:
    header_end = PREFIX_SIZE + int.from_bytes(wire[5:8])
    for _ in range(dice.randint(1, 4)):
        wire[dice.randrange(PREFIX_SIZE, header_end)] ^= 1 << dice.randrange(8)


def truncate_header(wire: bytearray, dice: random.Random) -> None:
    """Cut the header and say so, so that the frame is whole."""
    header_size = dice.randrange(int.from_bytes(wire[5:8]))
    del wire[PREFIX_SIZE + header_size :]
    wire[0:4] = (len(wire) - 4).to_bytes(4)
    wire[5:8] = header_size.to_bytes(3)


def truncate_body(wire: bytearray, dice: random.Random) -> None:
    """Cut the body and say so; a frame without a body gets one of a few bytes."""
    body_start = PREFIX_SIZE + int.from_bytes(wire[5:8])
    body_size = len(wire) - body_start
    if body_size:
        del wire[body_start + dice.randrange(body_size) :]
    else:
        wire += dice.randbytes(dice.randint(1, 20))
    wire[0:4] = (len(wire) - 4).to_bytes(4)


def change_notation(wire: bytearray, dice: random.Random) -> None:
    wire[4] = 1 - wire[4]


def overwrite_a_number(wire: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(wire) - 3)
    wire[at : at + 4] = dice.choice(
        (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4))
    )


DAMAGES: Final[tuple[Damage, ...]] = (
    flip_bits,
    flip_header_bits,
    truncate_header,
    truncate_body,
    change_notation,
    overwrite_a_number,
)
