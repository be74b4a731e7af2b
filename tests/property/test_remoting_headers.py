"""Every header class: round trips, missing fields, hostile fields."""

import dataclasses
import re
import types
import typing
from enum import IntEnum
from typing import Annotated, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.format.wire.headers.codec import Header, Int32
from flintmq.format.wire.headers.send import SendMessageResponse, SendReceipt, read_send_receipt
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.remoting_errors import (
    FieldValueError,
    HeaderFieldError,
    MissingFieldError,
)

KINDS: Final = sorted(
    {kind for pair in HEADERS.values() for kind in pair}, key=lambda k: k.__name__
)
WITH_FIELDS: Final = [kind for kind in KINDS if kind.wire_fields()]
hostile_texts = st.text() | st.sampled_from(["", "-1", "0", "1", "true", "9" * 30, "NaN", "null"])


def values(hint: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of(*(map(values, typing.get_args(hint))))
    if typing.get_origin(hint) is Annotated:
        limit = 1 << (31 if hint == Int32 else 63)
        return st.integers(-limit, limit - 1)
    if hint is type(None):
        return st.none()
    if hint is bool:
        return st.booleans()
    if issubclass(hint, IntEnum):
        return st.sampled_from(hint)
    assert hint is str
    return st.text()


def instances(kind: type[Header]) -> st.SearchStrategy[Header]:
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    return st.builds(
        kind, **{field.name: values(hints[field.name]) for field in dataclasses.fields(kind)}
    )


headers = st.sampled_from(KINDS).flatmap(instances)


def over_the_wire(ext_fields: dict[str, str], header_type: HeaderType) -> dict[str, str]:
    decoder = FrameDecoder()
    command = Command(code=1, ext_fields=ext_fields, serialize_type=header_type)
    decoder.feed(encode_command(command))
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame).ext_fields


def attempt(kind: type[Header], ext_fields: dict[str, str]) -> Header | HeaderFieldError:
    try:
        return kind.decode(ext_fields)
    except HeaderFieldError as error:
        return error


@given(header=headers, header_type=st.sampled_from(HeaderType))
def test_headers_survive_the_wire(header: Header, header_type: HeaderType) -> None:
    ext_fields = header.encode()
    assert type(header).decode(over_the_wire(ext_fields, header_type)) == header


@given(header=st.sampled_from(WITH_FIELDS).flatmap(instances), data=st.data())
def test_a_missing_field_takes_its_default_or_is_named(header: Header, data: st.DataObject) -> None:
    kind = type(header)
    at = data.draw(st.integers(0, len(kind.wire_fields()) - 1))
    wire_name = kind.wire_fields()[at]
    assert dataclasses.is_dataclass(kind)
    field = dataclasses.fields(kind)[at]
    ext_fields = header.encode()
    ext_fields.pop(wire_name, None)
    if field.default is not dataclasses.MISSING:
        assert getattr(kind.decode(ext_fields), field.name) == field.default
        return
    with pytest.raises(MissingFieldError) as caught:
        kind.decode(ext_fields)
    assert caught.value.field == wire_name


@given(header=st.sampled_from(WITH_FIELDS).flatmap(instances), data=st.data(), text=hostile_texts)
def test_a_hostile_field_is_read_or_named(header: Header, data: st.DataObject, text: str) -> None:
    kind = type(header)
    wire_name = data.draw(st.sampled_from(kind.wire_fields()))
    decoded = attempt(kind, {**header.encode(), wire_name: text})
    if isinstance(decoded, HeaderFieldError):
        assert isinstance(decoded, FieldValueError | MissingFieldError)
        assert decoded.field == wire_name
        assert wire_name in str(decoded)
    else:
        assert kind.decode(decoded.encode()) == decoded


@given(kind=st.sampled_from(KINDS), data=st.data())
def test_hostile_ext_fields_raise_only_a_header_field_error(
    kind: type[Header], data: st.DataObject
) -> None:
    names = st.sampled_from(("x", *kind.wire_fields()))
    ext_fields = data.draw(st.dictionaries(names, hostile_texts))
    decoded = attempt(kind, ext_fields)
    if isinstance(decoded, HeaderFieldError):
        assert decoded.field in kind.wire_fields()
    else:
        assert kind.decode(decoded.encode()) == decoded


def receipt_of(ext_fields: dict[str, str]) -> SendReceipt:
    read = SendMessageResponse.decode(ext_fields)
    return SendReceipt(read.msg_id, read.queue_id, read.queue_offset, read.region, read.trace_on)


answer_values = hostile_texts | st.integers(-(1 << 64), 1 << 64).map(str) | st.just("٣")


@given(
    st.fixed_dictionaries(
        {"msgId": answer_values, "queueId": st.just("3"), "queueOffset": answer_values},
        optional={"MSG_REGION": st.text(), "TRACE_ON": st.sampled_from(["true", "false", "no"])},
    )
    | st.dictionaries(st.sampled_from(SendMessageResponse.wire_fields()), answer_values)
)
def test_where_a_message_was_stored_is_what_the_whole_header_says(
    ext_fields: dict[str, str],
) -> None:
    try:
        expected = receipt_of(ext_fields)
    except HeaderFieldError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            read_send_receipt(ext_fields)
    else:
        assert read_send_receipt(ext_fields) == expected
