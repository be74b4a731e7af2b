"""Recorded frames, damaged: none of them raises anything but the errors of the protocol."""

import contextlib
import random

import pytest

from flintmq.format.wire.command import decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.remoting_errors import HeaderFieldError, RemoteProtocolError
from tests.kits.golden.damaged_frames import (
    DAMAGES,
    Damage,
    change_notation,
    recorded_frames,
    truncate_header,
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_recording_raises_only_errors_of_the_protocol(damage: Damage) -> None:
    dice = random.Random(damage.__name__)
    survivors = 0
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
