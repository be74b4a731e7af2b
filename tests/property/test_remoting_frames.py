"""Frames and commands: any cut of the stream, any bytes."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.wire import frame as frame_module
from flintmq.format.wire import partial_frame
from flintmq.format.wire.codes import LanguageCode
from flintmq.format.wire.command import Command, decode_command, encode_command, encode_header
from flintmq.format.wire.frame import PREFIX_SIZE, Frame, FrameDecoder, HeaderType, encode_frame
from flintmq.format.wire.remoting_errors import RemoteProtocolError

i16s = st.integers(-(1 << 15), (1 << 15) - 1)
i32s = st.integers(-(1 << 31), (1 << 31) - 1)
header_types = st.sampled_from(HeaderType)
frames = st.builds(Frame, header_types, st.binary(max_size=64), st.binary())
commands = st.builds(
    Command,
    code=i16s,
    language=st.sampled_from(LanguageCode),
    version=i16s,
    opaque=i32s,
    flag=i32s,
    # The binary notation has no empty remark.
    remark=st.none() | st.text(min_size=1),
    ext_fields=st.dictionaries(st.text(), st.text(), max_size=8),
    body=st.binary(max_size=64),
    serialize_type=header_types,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


def decode(*chunks: bytes) -> list[Frame]:
    decoder = FrameDecoder()
    decoded: list[Frame] = []
    for chunk in chunks:
        decoder.feed(chunk)
        decoded += iter(decoder.next_frame, None)
    return decoded


def decode_commands(wire: bytes) -> list[Command]:
    return [decode_command(frame) for frame in decode(wire)]


@given(sent=st.lists(frames), chunk_size=st.integers(min_value=1, max_value=40))
def test_frames_do_not_depend_on_how_the_stream_is_cut(sent: list[Frame], chunk_size: int) -> None:
    wire = b"".join(map(encode_frame, sent))
    chunks = [wire[at : at + chunk_size] for at in range(0, len(wire), chunk_size)]
    assert decode(*chunks) == sent


@given(
    sent=st.lists(frames),
    sizes=st.lists(st.integers(min_value=1, max_value=60), min_size=1),
    joined_max=st.integers(min_value=0, max_value=40),
)
def test_large_frames_do_not_depend_on_how_reads_are_cut_or_joined(
    sent: list[Frame], sizes: list[int], joined_max: int
) -> None:
    wire = b"".join(map(encode_frame, sent))
    decoder, found, at, number = FrameDecoder(), list[Frame](), 0, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_module, "LARGE_FRAME_SIZE", 24)
        patch.setattr(partial_frame, "PIECE_SIZE_MIN", 10)
        patch.setattr(partial_frame, "TAIL_SIZE_MAX", 20)
        while at < len(wire):
            chunk = wire[at : at + sizes[number % len(sizes)]]
            at, number = at + len(chunk), number + 1
            whole = decoder.whole(chunk, pending_size_max=joined_max) if number % 2 else None
            found += decoder.frames(chunk if whole is None else whole)
            taken = sum(len(encode_frame(frame)) for frame in found)
            assert decoder.pending_size == at - taken
    assert found == sent


@given(garbage=st.binary(min_size=8), cut=st.integers(min_value=0, max_value=12))
def test_hostile_bytes_raise_only_a_remote_protocol_error(garbage: bytes, cut: int) -> None:
    with contextlib.suppress(RemoteProtocolError):
        for frame in decode(garbage[:cut], garbage[cut:]):
            decode_command(frame)


@given(header_type=header_types, header=st.binary())
def test_hostile_headers_raise_only_a_remote_protocol_error(
    header_type: HeaderType, header: bytes
) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_command(Frame(header_type, header))


@given(sent=st.lists(commands, max_size=4))
def test_commands_survive_the_wire(sent: list[Command]) -> None:
    assert decode_commands(b"".join(map(encode_command, sent))) == sent


@given(sent=commands)
def test_both_notations_say_the_same(sent: Command) -> None:
    (first,) = decode_commands(encode_command(sent))
    first.serialize_type = HeaderType(1 - first.serialize_type)
    (second,) = decode_commands(encode_command(first))
    assert second == first


@given(sent=commands, data=st.data())
def test_a_truncated_header_raises_only_a_remote_protocol_error(
    sent: Command, data: st.DataObject
) -> None:
    header = encode_header(sent)
    size = data.draw(st.integers(0, len(header) - 1))
    with contextlib.suppress(RemoteProtocolError):
        decode_command(Frame(sent.serialize_type, header[:size]))


@given(sent=commands, data=st.data())
def test_a_truncated_frame_is_waited_for(sent: Command, data: st.DataObject) -> None:
    wire = encode_command(sent)
    assert decode(wire[: data.draw(st.integers(0, len(wire) - 1))]) == []


@given(sent=commands, data=st.data(), bit=st.integers(0, 7))
def test_a_flipped_bit_raises_only_a_remote_protocol_error(
    sent: Command, data: st.DataObject, bit: int
) -> None:
    wire = bytearray(encode_command(sent))
    wire[data.draw(st.integers(0, len(wire) - 1))] ^= 1 << bit
    with contextlib.suppress(RemoteProtocolError):
        decode_commands(bytes(wire))


@given(
    members=st.dictionaries(
        st.sampled_from(
            ["code", "flag", "language", "opaque", "remark", "version", "extFields", "x"]
        ),
        json_values,
    )
)
def test_any_json_value_in_a_header_is_read_or_refused(members: dict[str, object]) -> None:
    frame = Frame(HeaderType.JSON, json.dumps(members).encode())
    with contextlib.suppress(RemoteProtocolError):
        command = decode_command(frame)
        assert decode_commands(encode_command(command)) == [command]


@given(ext_fields=st.dictionaries(st.text(), st.text(st.characters(exclude_categories=()))))
def test_what_was_decoded_can_be_encoded(ext_fields: dict[str, str]) -> None:
    frame = Frame(HeaderType.JSON, json.dumps({"code": 1, "extFields": ext_fields}).encode())
    command = decode_command(frame)
    wire = encode_command(command)
    assert len(wire) > PREFIX_SIZE
    assert decode_commands(wire) == [command]


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=())), max_size=4))
def test_json_headers_are_written_as_the_plain_encoder_writes_them(fields: dict[str, str]) -> None:
    command = Command(code=1, ext_fields=fields, empty_ext_fields=True)
    (frame,) = decode(encode_command(command))
    plain = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    assert f'"extFields":{plain},'.encode("utf-8", "replace") in frame.header
