import json
import struct
from typing import Any

import pytest

from flintmq.format.wire.codes import LanguageCode, RequestCode, ResponseCode
from flintmq.format.wire.command import (
    EXT_FIELD_COUNT_MAX,
    Command,
    decode_command,
    encode_command,
    encode_command_head,
    encode_header,
)
from flintmq.format.wire.frame import Frame, FrameDecoder, HeaderType
from flintmq.format.wire.remoting_errors import CommandHeaderError, LocalProtocolError

ROUTE_REQUEST = Command(
    code=RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=1, ext_fields={"topic": "TopicTest"}
)
PROPERTIES = (
    "KEYS\x01k1\x02UNIQ_KEY\x010A0B0C0D04D218B4AAC20E4C5A000000\x02WAIT\x01true\x02TAGS\x01TagA"
)
SEND_FIELDS = {
    "a": "PG",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def binary(command: Command) -> Command:
    command.serialize_type = HeaderType.ROCKETMQ
    return command


def decode(wire: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(wire)
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame)


def decode_json(header: bytes | str | dict[str, Any]) -> Command:
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    return decode_command(Frame(HeaderType.JSON, header))


def decode_binary(header: bytes) -> Command:
    return decode_command(Frame(HeaderType.ROCKETMQ, header))


# The vectors of the specification


def test_a_json_request_is_written_as_java_writes_it() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":1,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    wire = bytes.fromhex("0000008700000083") + header
    assert encode_command(ROUTE_REQUEST) == wire
    assert decode(wire) == ROUTE_REQUEST


def test_a_binary_request_is_written_as_java_writes_it() -> None:
    wire = bytes.fromhex(
        "0000002d 01000029 0069 00 0199 00000001 00000000 00000000 00000014"
        "0005 746f706963 00000009 546f70696354657374"
    )
    request = binary(Command(code=105, opaque=1, ext_fields={"topic": "TopicTest"}))
    assert encode_command(request) == wire
    assert decode(wire) == request


def test_a_binary_answer_may_have_a_remark_and_no_fields() -> None:
    wire = bytes.fromhex(
        "0000001d 01000019 0011 00 0199 00000001 00000001 00000004 6e6f7065 00000000"
    )
    answer = binary(Command(code=105, opaque=1)).answer(ResponseCode.TOPIC_NOT_EXIST, remark="nope")
    assert encode_command(answer) == wire
    assert decode(wire) == answer


@pytest.mark.parametrize(
    ("header_type", "frame_size"), [(HeaderType.ROCKETMQ, 247), (HeaderType.JSON, 372)]
)
def test_a_send_has_the_sizes_of_its_vector(header_type: HeaderType, frame_size: int) -> None:
    request = Command(
        code=RequestCode.SEND_MESSAGE_V2,
        opaque=7,
        ext_fields=dict(SEND_FIELDS),
        body=b"hello",
        serialize_type=header_type,
    )
    wire = encode_command(request)
    assert len(wire) == frame_size
    assert decode(wire) == request


def test_control_characters_are_escaped() -> None:
    header = encode_header(Command(code=310, ext_fields={"i": PROPERTIES}))
    assert rb"KEYS\u0001k1\u0002UNIQ_KEY" in header


def test_a_send_answer_is_written_as_java_writes_it() -> None:
    fields = {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": "7F00000100002A9F0000000000000400",
        "queueId": "2",
        "queueOffset": "0",
    }
    wire = encode_command(Command(code=310, opaque=7).answer(0, ext_fields=fields))
    assert len(wire) == 239
    assert wire[:8] == bytes.fromhex("000000eb 000000e7")


# Flags and answers


@pytest.mark.parametrize(
    ("flag", "is_response", "is_one_way"),
    [(0, False, False), (1, True, False), (2, False, True), (3, True, False)],
)
def test_the_response_bit_decides_first(flag: int, is_response: bool, is_one_way: bool) -> None:
    command = Command(code=1, flag=flag)
    assert (command.is_response, command.is_one_way) == (is_response, is_one_way)


@pytest.mark.parametrize("header_type", HeaderType)
def test_an_answer_has_the_opaque_and_the_notation_of_its_request(header_type: HeaderType) -> None:
    request = Command(code=11, opaque=77, version=121, serialize_type=header_type)
    answer = request.answer(ResponseCode.SUCCESS, ext_fields={"offset": "1"}, body=b"x")
    assert (answer.opaque, answer.serialize_type) == (77, header_type)
    assert answer.is_response
    assert answer.version == 409
    assert answer.body == b"x"


def test_an_answer_with_a_header_of_no_fields_shows_it() -> None:
    request = Command(code=35)
    assert b'"extFields":{}' in encode_header(request.answer(0, ext_fields={}))
    assert b"extFields" not in encode_header(request.answer(0))


def test_a_body_may_come_from_elsewhere() -> None:
    command = Command(code=11, body=b"records")
    assert encode_command_head(command, body_size=7) + b"records" == encode_command(command)


# What JSON senders do


def test_ext_fields_of_any_type_become_text() -> None:
    sent = (
        '{"code":10,"extFields":{"queueId":0,"big":9223372036854775807,"k":false,"m":true,'
        '"none":null,"t":"x","f":1.50,"e":-1e3,"o":{"a":[1,"b"]}}}'
    )
    assert decode_json(sent).ext_fields == {
        "queueId": "0",
        "big": "9223372036854775807",
        "k": "false",
        "m": "true",
        "t": "x",
        "f": "1.50",
        "e": "-1e3",
        "o": '{"a":[1,"b"]}',
    }


@pytest.mark.parametrize(
    ("sent", "language"),
    [
        ("CPP", LanguageCode.CPP),
        (3, LanguageCode.PYTHON),
        ("9", LanguageCode.GO),
        (None, LanguageCode.JAVA),
        ("COBOL", LanguageCode.OTHER),
        (99, LanguageCode.OTHER),
        (-1, LanguageCode.OTHER),
        ([], LanguageCode.OTHER),
        ("²", LanguageCode.OTHER),
    ],
)
def test_the_language_is_a_name_or_a_number(sent: object, language: LanguageCode) -> None:
    assert decode_json({"code": 1, "language": sent}).language is language


def test_members_may_be_missing_or_unknown() -> None:
    assert decode_json("{}") == Command(code=0, version=0)
    assert decode_json({"code": 5, "novel": [1], "remark": None}).code == 5


def test_numbers_may_be_text() -> None:
    assert decode_json({"code": "105", "opaque": "-7"}).opaque == -7


def test_raw_control_characters_are_read() -> None:
    assert decode_json(b'{"extFields":{"i":"K\x01v\x02"}}').ext_fields == {"i": "K\x01v\x02"}


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert decode_json(b'{"extFields":{"t":"\xff"}}').ext_fields == {"t": "\ufffd"}
    header = struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 8) + b"\x00\x01k\x00\x00\x00\x01\xff"
    assert decode_binary(header).ext_fields == {"k": "\ufffd"}


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    command = decode_json(
        r'{"extFields":{"\udc00":"a\ud800b","p":"\ud83d\ude00"},"remark":"\ud800"}'
    )
    assert command.ext_fields == {"?": "a?b", "p": "\U0001f600"}
    assert command.remark == "?"
    assert encode_header(Command(code=1, remark="\ud800")).count(b'"?"') == 1


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"code":1}x',
        b'{"code":true}',
        b'{"code":1.5}',
        b'{"code":"x"}',
        b'{"code":[]}',
        b'{"code":"1234567890123"}',
        b'{"opaque":2147483648}',
        b'{"opaque":NaN}',
        b'{"extFields":{"a":Infinity}}',
        b'{"extFields":[1]}',
        b'{"extFields":"x"}',
        b'{"extFields":{"n":' + b"9" * 5000 + b"}}",
        b'{"extFields":' * 100_000,
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_header_is_refused(header: bytes) -> None:
    with pytest.raises(CommandHeaderError):
        decode_json(header)


def test_the_number_of_ext_fields_has_a_limit() -> None:
    fields = {str(number): "" for number in range(EXT_FIELD_COUNT_MAX)}
    for header_type in HeaderType:
        command = Command(code=1, ext_fields=dict(fields), serialize_type=header_type)
        assert decode(encode_command(command)) == command
        command.ext_fields["more"] = ""
        with pytest.raises(CommandHeaderError, match="ext fields"):
            decode(encode_command(command))


# The binary notation


def test_an_empty_value_survives_the_binary_notation_and_an_empty_remark_does_not() -> None:
    command = binary(Command(code=1, ext_fields={"i": "", "": "x"}, remark=""))
    decoded = decode(encode_command(command))
    assert decoded.ext_fields == {"i": "", "": "x"}
    assert decoded.remark is None


def test_of_two_entries_with_one_key_the_last_counts() -> None:
    entry = b"\x00\x01k\x00\x00\x00\x01"
    header = struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 16) + entry + b"1" + entry + b"2"
    assert decode_binary(header).ext_fields == {"k": "2"}


def test_an_unknown_language_number_is_other() -> None:
    assert decode_binary(struct.pack(">hbhiiii", 1, 77, 0, 0, 0, 0, 0)).language == 7


@pytest.mark.parametrize(
    "header",
    [
        b"",
        bytes(20),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, -1, 0),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 1, 0),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 1),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, -1),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 6) + struct.pack(">hi", -1, 0),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 6) + struct.pack(">hi", 0, -1),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 6) + struct.pack(">hi", 0, 1),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 6) + struct.pack(">hi", 9, 0),
        struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 3) + b"\x00\x01k",
    ],
)
def test_what_is_no_binary_header_is_refused(header: bytes) -> None:
    with pytest.raises(CommandHeaderError):
        decode_binary(header)


def test_what_the_binary_notation_cannot_carry_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="code 200050"):
        encode_command(binary(Command(code=200050)))
    with pytest.raises(LocalProtocolError, match="name of an ext field"):
        encode_command(binary(Command(code=1, ext_fields={"k" * 32768: ""})))


def test_a_command_over_the_limit_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="the limit is 100"):
        encode_command(Command(code=1, body=bytes(100)), frame_size_max=100)
