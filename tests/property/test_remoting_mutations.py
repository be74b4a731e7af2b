"""Recorded frames, damaged: none of them raises anything but the errors of the protocol."""

import base64
import contextlib
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.command import decode_command, encode_command
from flintmq.format.frame import PREFIX_SIZE, FrameDecoder
from flintmq.format.headers.table import HEADERS
from flintmq.format.remoting_errors import HeaderFieldError, RemoteProtocolError

FRAMES: Final = Path(__file__).parent.parent / "golden" / "data" / "frames"
FRAME_COUNT_MIN: Final = 5000


@functools.cache
def recorded_frames() -> tuple[bytes, ...]:
    paths = [path for path in sorted(FRAMES.glob("*/*.jsonl")) if path.stem != "ha-stream"]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple(base64.b64decode(json.loads(line)["raw"]) for line in lines)


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


def change_notation(wire: bytearray, dice: random.Random) -> None:
    wire[4] = 1 - wire[4]


def overwrite_a_number(wire: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(wire) - 3)
    wire[at : at + 4] = dice.choice(
        (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4))
    )


@pytest.mark.parametrize(
    "damage", [flip_bits, flip_header_bits, truncate_header, change_notation, overwrite_a_number]
)
def test_a_damaged_recording_raises_only_errors_of_the_protocol(
    damage: Callable[[bytearray, random.Random], None],
) -> None:
    dice = random.Random(damage.__name__)
    survivors = 0
    assert len(recorded_frames()) > FRAME_COUNT_MIN
    for raw in recorded_frames():
        wire = bytearray(raw)
        damage(wire, dice)
        with contextlib.suppress(RemoteProtocolError, HeaderFieldError):
            survivors += handle(wire)
    # Damage to bodies and texts leaves a command; a cut or a wrong notation never does.
    assert (survivors == 0) == (damage in (truncate_header, change_notation))


def handle(wire: bytearray) -> bool:
    """Do what a server does with received bytes; tell whether a command was understood."""
    decoder = FrameDecoder()
    decoder.feed(wire)
    frame = decoder.next_frame()
    if frame is None:
        return False
    command = decode_command(frame)
    if not command.is_response and command.code in HEADERS:
        header = HEADERS[command.code].request.decode(command.ext_fields)
        assert type(header).decode(header.encode()) == header
    assert encode_command(command)
    return True
