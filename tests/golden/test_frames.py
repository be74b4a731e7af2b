"""Every frame that Java peers exchanged is read, and written again as it was."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from flintmq.format.wire.codes import LanguageCode, RequestCode, ResponseCode
from flintmq.format.wire.command import decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.format.wire.headers.clients import NoFields
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.remoting_errors import MissingFieldError
from tests.kits.golden.recorded_frames import CONVERSATIONS, Recorded, conversation, decode

FRAME_COUNT: Final = 5394
BYTE_IDENTICAL_COUNT: Final = 5370

SIGNING_FIELDS: Final = frozenset({"AccessKey", "Signature"})
"""Added to any request by a client that signs."""
IGNORED_FIELDS: Final = SIGNING_FIELDS | {"ReqT"}
"""``ReqT`` is added by pull consumers and read by nobody."""
UNTYPED_CODES: Final = frozenset(
    {
        RequestCode.GET_TOPIC_CONFIG_LIST,
        RequestCode.GET_TOPIC_NAME_LIST,
        RequestCode.TRIGGER_DELETE_FILES,
        9999,
    }
)
"""Requests without a header class: access control, and what brokers answer with code 3."""

ANSWERS_WITH_HEADER: Final[dict[int, set[ResponseCode]]] = {
    RequestCode.PULL_MESSAGE: {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    },
    RequestCode.QUERY_MESSAGE: {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND},
}


def recorded_frames() -> Iterator[Recorded]:
    for name in CONVERSATIONS:
        yield from conversation(name)


def test_the_recording_is_whole() -> None:
    assert Counter(name.split("/")[0] for name in CONVERSATIONS) == {
        "json": 99,
        "rocketmq": 99,
        "mixed": 6,
    }
    assert sum(1 for _ in recorded_frames()) == FRAME_COUNT


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_frame_decodes_to_what_was_recorded(name: str) -> None:
    for recorded in conversation(name):
        line, header = recorded.line, recorded.line["header"]
        frame, command = decode(recorded.raw), recorded.command
        assert frame.header_type is HeaderType[line["serialize"]]
        assert len(frame.header) == line["headerLength"]
        assert len(frame.body) == line["bodyLength"]
        assert command.code == line["code"] == header["code"]
        assert command.opaque == line["opaque"] == header["opaque"]
        assert command.language is LanguageCode[header["language"]]
        assert command.version == header["version"]
        assert command.flag == header["flag"]
        assert command.remark == header.get("remark")
        assert command.ext_fields == recorded.ext_fields
        assert command.body == recorded.raw[8 + line["headerLength"] :]
        assert command.serialize_type is frame.header_type
        assert command.is_response == (line["type"] == "response")
        assert command.is_one_way == (line["type"] == "oneway")


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_frame_is_written_again_with_the_same_meaning(name: str) -> None:
    for recorded in conversation(name):
        command = recorded.command
        assert decode_command(decode(encode_command(command))) == command


def test_frames_are_written_again_byte_for_byte() -> None:
    different = [each for each in recorded_frames() if encode_command(each.command) != each.raw]
    assert FRAME_COUNT - len(different) >= BYTE_IDENTICAL_COUNT
    for recorded in different:
        # A Java client that signs writes the fields of sends and pulls twice in the binary form.
        assert recorded.line["serialize"] == "ROCKETMQ"
        assert recorded.ext_fields.keys() >= SIGNING_FIELDS
        assert recorded.line["code"] in (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_decodes_from_one_stream(name: str) -> None:
    recorded = conversation(name)
    decoder = FrameDecoder()
    decoder.feed(b"".join(each.raw for each in recorded))
    frames = list(iter(decoder.next_frame, None))
    assert [decode_command(frame) for frame in frames] == [each.command for each in recorded]


def test_every_recorded_request_has_a_header_class() -> None:
    codes = {each.line["code"] for each in recorded_frames() if each.line["type"] != "response"}
    assert codes - HEADERS.keys() == UNTYPED_CODES
    assert len(codes & HEADERS.keys()) == 81


def test_every_recorded_request_header_is_read_and_written_again() -> None:
    read_count, refused = 0, Counter[int]()
    for recorded in recorded_frames():
        code = recorded.line["code"]
        if recorded.line["type"] == "response" or code not in HEADERS:
            continue
        kind = HEADERS[code].request
        fields = {
            key: value for key, value in recorded.ext_fields.items() if key not in IGNORED_FIELDS
        }
        try:
            header = kind.decode(recorded.command.ext_fields)
        except MissingFieldError:
            # The recording has requests without any field; Java refuses them too.
            assert not fields
            refused[code] += 1
            continue
        assert header.encode() == fields, recorded.line
        assert kind.decode(header.encode()) == header
        read_count += 1
    assert refused == {RequestCode.PULL_MESSAGE: 3, RequestCode.SEND_MESSAGE_V2: 3}
    assert read_count == 2918


def test_every_recorded_answer_header_is_read_and_written_again() -> None:
    read_count = 0
    for recorded in recorded_frames():
        request_code = recorded.line.get("requestCode", -1)
        if request_code not in HEADERS:
            continue
        kind = HEADERS[request_code].response
        with_header = ANSWERS_WITH_HEADER.get(request_code, {ResponseCode.SUCCESS})
        if recorded.line["code"] not in with_header:
            continue
        header = kind.decode(recorded.command.ext_fields)
        assert header.encode() == recorded.ext_fields, recorded.line
        read_count += kind is not NoFields
    assert read_count == 519


def test_an_answer_goes_in_the_form_of_its_request() -> None:
    requests = [
        each.command for each in conversation("mixed/producer") if "client->" in each.line["dir"]
    ]
    assert requests
    for request in requests:
        answer = request.answer(ResponseCode.SUCCESS)
        assert decode(encode_command(answer)).header_type is request.serialize_type
