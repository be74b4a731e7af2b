"""A request looks the same whichever notation its header has."""

import json

import pytest

from flintmq.format.wire.codes import LanguageCode, RequestCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command, encode_header
from flintmq.format.wire.frame import Frame, HeaderType
from flintmq.format.wire.remoting_errors import CommandHeaderError
from flintmq.remoting.received_request import ReceivedRequest, receive


def json_request(**members: object) -> ReceivedRequest:
    usual = {"code": 310, "flag": 0, "opaque": 7, "version": 399, "extFields": {"b": "T"}}
    return receive(Frame(HeaderType.JSON, json.dumps(usual | members).encode(), b"body"))


@pytest.mark.parametrize("header_type", HeaderType)
def test_both_notations_give_the_same_request(header_type: HeaderType) -> None:
    command = Command(
        code=RequestCode.SEND_MESSAGE_V2,
        language=LanguageCode.GO,
        version=399,
        opaque=-5,
        flag=ONE_WAY_FLAG,
        ext_fields={"b": "T", "e": "1"},
        body=b"body",
        serialize_type=header_type,
    )
    request = receive(Frame(header_type, encode_header(command), command.body))
    assert (request.code, request.flag, request.opaque) == (310, ONE_WAY_FLAG, -5)
    assert request.raw_fields == request.ext_fields == {"b": "T", "e": "1"}
    assert (request.language, request.version) == (LanguageCode.GO, 399)
    assert (request.body, request.header_type) == (b"body", header_type)
    assert request.command == command
    assert request.command is request.command


def test_values_that_are_no_texts_become_texts() -> None:
    request = json_request(extFields={"e": 1, "k": True, "x": 1.50, "n": None})
    assert request.ext_fields == {"e": "1", "k": "true", "x": "1.5"}


def test_numbers_that_came_as_texts_are_numbers() -> None:
    request = json_request(code="310", flag="2", opaque="9")
    assert (request.code, request.flag, request.opaque) == (310, 2, 9)


def test_a_request_without_ext_fields_has_none() -> None:
    request = json_request(extFields=None)
    assert request.raw_fields == request.ext_fields == {}


@pytest.mark.parametrize(
    "members",
    [
        {"code": [310]},
        {"flag": {}},
        {"opaque": 1 << 31},
        {"opaque": -1 - (1 << 31)},
        {"extFields": ["b"]},
    ],
)
def test_a_header_that_is_none_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(CommandHeaderError):
        json_request(**members)


def test_what_nobody_had_looked_at_is_refused_when_somebody_does() -> None:
    request = json_request(version=1 << 40)
    with pytest.raises(CommandHeaderError):
        _ = request.ext_fields
