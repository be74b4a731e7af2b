import copy
import dataclasses
import pickle
from enum import IntEnum

import pytest

from flintmq.format.wire.headers.admin import CreateTopicRequest, TopicFilterType
from flintmq.format.wire.headers.clients import NoFields, UnregisterClientRequest
from flintmq.format.wire.headers.codec import Header, Int32, Int64, header
from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest, RouteRequest
from flintmq.format.wire.headers.pull import PullMessageRequest
from flintmq.format.wire.headers.query import QueryMessageRequest
from flintmq.format.wire.headers.send import (
    SendAnswer,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.remoting_errors import (
    FieldValueError,
    HeaderFieldError,
    LocalProtocolError,
    MissingFieldError,
    RemoteProtocolError,
)


class Colour(IntEnum):
    RED = 0
    BLUE = 7


@header
class Sample(Header, wire_names={"odd_name": "ODD"}):
    some_text: str
    count32: Int32
    long_value: Int64 = 5
    is_on: bool = False
    colour: Colour | None = None
    odd_name: str | None = None


def decode(**ext_fields: str) -> Sample:
    return Sample.decode({"someText": "t", "count32": "1", **ext_fields})


def test_names_are_in_camel_case_unless_said_otherwise() -> None:
    assert Sample.wire_fields() == (
        "someText",
        "count32",
        "longValue",
        "isOn",
        "colour",
        "ODD",
    )


def test_a_header_is_written_as_text_without_what_is_none() -> None:
    header = Sample(some_text="t", count32=-3, is_on=True, colour=Colour.BLUE)
    assert header.encode() == {
        "someText": "t",
        "count32": "-3",
        "longValue": "5",
        "isOn": "true",
        "colour": "BLUE",
    }


def test_defaults_stand_for_what_is_absent() -> None:
    assert decode() == Sample(some_text="t", count32=1)


def test_unknown_fields_are_ignored() -> None:
    assert decode(ReqT="0", ns="x") == decode()


@pytest.mark.parametrize("missing", ["someText", "count32"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {"someText": "t", "count32": "1"}
    del fields[missing]
    with pytest.raises(MissingFieldError, match=f"^Sample: field {missing} is missing$") as caught:
        Sample.decode(fields)
    assert caught.value.field == missing


def test_an_empty_number_is_a_missing_one_and_an_empty_text_is_a_text() -> None:
    assert decode(someText="", ODD="").odd_name == ""
    assert decode(longValue="", isOn="", colour="") == decode()
    with pytest.raises(MissingFieldError):
        decode(count32="")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("+7", 7), ("-2147483648", -(1 << 31)), ("2147483647", (1 << 31) - 1), ("007", 7)],
)
def test_integers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert decode(count32=text).count32 == value


@pytest.mark.parametrize(
    "text",
    ["2147483648", "-2147483649", "1.0", " 1", "1_0", "0x1", "\u0661", "-", "9" * 5000, "true"],
)
def test_what_is_no_integer_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(FieldValueError, match="Sample: field count32 is not an integer of 32 bits"):
        decode(count32=text)


def test_a_long_has_64_bits() -> None:
    assert decode(longValue="-9223372036854775808").long_value == -(1 << 63)
    with pytest.raises(FieldValueError, match="longValue is not an integer of 64 bits"):
        decode(longValue="9223372036854775808")


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("FALSE", False), ("0", False)],
)
def test_booleans_are_words_or_digits(text: str, value: bool) -> None:
    assert decode(isOn=text).is_on is value


def test_what_is_no_boolean_is_refused() -> None:
    with pytest.raises(FieldValueError, match="isOn is not a boolean: 'yes'"):
        decode(isOn="yes")


@pytest.mark.parametrize(("text", "value"), [("BLUE", Colour.BLUE), ("7", 7), ("0", Colour.RED)])
def test_enums_are_names_or_numbers(text: str, value: Colour) -> None:
    assert decode(colour=text).colour is Colour(value)


@pytest.mark.parametrize("text", ["blue", "1", "-7", "²"])
def test_what_is_no_member_is_refused(text: str) -> None:
    with pytest.raises(FieldValueError, match="colour is not one of RED, BLUE"):
        decode(colour=text)


def test_a_value_out_of_range_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="count32 is not an integer of 32 bits"):
        Sample(some_text="t", count32=1 << 31).encode()


def test_an_error_repeats_only_the_start_of_a_long_text() -> None:
    with pytest.raises(FieldValueError) as caught:
        decode(count32="9" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "error", [MissingFieldError("H", "f"), FieldValueError("H", "f", "a boolean", "x")]
)
def test_field_errors_can_be_copied(error: HeaderFieldError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert (str(twin), twin.field) == (str(error), "f")


def test_a_field_error_does_not_end_a_connection() -> None:
    assert not issubclass(HeaderFieldError, RemoteProtocolError)


def test_all_headers_are_frozen_and_slotted() -> None:
    for pair in HEADERS.values():
        for kind in pair:
            assert dataclasses.is_dataclass(kind)
            assert "__slots__" in vars(kind)
            with pytest.raises(dataclasses.FrozenInstanceError):
                object.__new__(kind).anything = 1
            names = kind.wire_fields()
            assert len(set(names)) == len(names)


def test_both_forms_of_a_send_say_the_same() -> None:
    short = SendMessageRequestV2(
        producer_group="PG",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=0,
        properties="",
        reconsume_times=0,
        max_reconsume_times=16,
        batch=True,
        broker_name="b",
    )
    assert list(short.encode()) == list("abcdefghijklmn")
    assert isinstance(short, SendMessageRequest)
    long = SendMessageRequest(**dataclasses.asdict(short))
    assert list(long.encode().values()) == list(short.encode().values())
    assert long.encode()["bname"] == "b"


def test_a_send_of_the_old_cpp_client_is_read() -> None:
    header = SendMessageRequest.decode(
        {
            "producerGroup": "PG",
            "topic": "T",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": "TAGS\x01a\x02",
            "batch": "1",
            "unitMode": "0",
            "Signature": "",
            "AccessKey": "",
            "OnsChannel": "",
        }
    )
    assert (header.batch, header.unit_mode, header.reconsume_times) == (True, False, None)


def test_a_refused_send_answers_region_and_trace() -> None:
    assert SendAnswer(region="DefaultRegion", trace_on=True).encode() == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert SendMessageResponse.wire_fields() == (
        "MSG_REGION",
        "TRACE_ON",
        "msgId",
        "queueId",
        "queueOffset",
        "transactionId",
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (NoFields, ""),
        (UnregisterClientRequest, "clientID producerGroup consumerGroup"),
        (RouteRequest, "topic acceptStandardJsonOnly"),
        (
            RegisterBrokerRequest,
            "brokerName brokerAddr clusterName haServerAddr brokerId compressed bodyCrc32",
        ),
        (
            QueryMessageRequest,
            "topic key maxNum beginTimestamp endTimestamp _UNIQUE_KEY_QUERY",
        ),
        (
            PullMessageRequest,
            "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset "
            "suspendTimeoutMillis subscription subVersion expressionType bname",
        ),
    ],
)
def test_wire_names_are_those_of_java(kind: type[Header], names: str) -> None:
    assert kind.wire_fields() == tuple(names.split())


@pytest.mark.parametrize("filter_type", ["MULTI_TAG", "1"])
def test_the_filter_type_of_a_topic_is_a_name_or_a_number(filter_type: str) -> None:
    header = CreateTopicRequest.decode(
        {
            "topic": "T",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": filter_type,
        }
    )
    assert header.topic_filter_type is TopicFilterType.MULTI_TAG
    assert header.encode()["topicFilterType"] == "MULTI_TAG"
