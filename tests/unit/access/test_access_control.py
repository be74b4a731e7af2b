"""The admission by itself: signatures of any request, and permissions against a plain model."""

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.access.access_control import AccessControl
from flintmq.access.access_document import read_document
from flintmq.access.access_errors import DenialReason, DeniedError
from flintmq.access.access_files import AccessFiles
from flintmq.access.accounts import PUBLISH, SUBSCRIBE, Accounts, group, topic
from flintmq.access.address_patterns import NO_ADDRESSES
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.frame import Frame, FrameDecoder, HeaderType
from flintmq.format.wire.signature import signed_fields
from flintmq.remoting.received_request import ReceivedRequest, receive

KEY: Final = "someKey1"
SECRET: Final = "secret12"
TEXT = f"accounts: [{{accessKey: {KEY}, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB}}]"
FIELDS = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
    st.text(st.characters(codec="utf-8"), max_size=12),
    max_size=6,
)


class FromHere:
    """As much of a connection as the admission looks at."""

    peer = ("127.0.0.1", 5000)


HERE: Final[Any] = FromHere()


def control(text: str = TEXT) -> AccessControl:
    accounts = read_document(text.encode()).accounts
    by_key = {account.access_key: account for account in accounts}
    files = AccessFiles(Path("nowhere.yml"), now_ms=lambda: 0)
    return AccessControl(files, Accounts(by_key, NO_ADDRESSES))


def reason(request: ReceivedRequest, access: AccessControl | None = None) -> DenialReason | None:
    """Return why a request is denied, or None if it is admitted."""
    try:
        (access or control()).admit(HERE, request)
    except DeniedError as denial:
        return denial.reason
    return None


def framed(command: Command) -> Frame:
    (frame,) = FrameDecoder().frames(encode_command(command))
    return frame


@given(fields=FIELDS, body=st.binary(max_size=20), notation=st.sampled_from(HeaderType))
def test_a_signed_request_is_admitted_in_either_notation(
    fields: dict[str, str], body: bytes, notation: HeaderType
) -> None:
    signed = signed_fields(fields, body, access_key=KEY, secret_key=SECRET)
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    command = Command(code=code, ext_fields=signed, body=body, serialize_type=notation)
    assert reason(receive(framed(command))) is None


@given(fields=FIELDS, body=st.binary(max_size=20), data=st.data())
def test_a_request_with_any_value_changed_is_denied(
    fields: dict[str, str], body: bytes, data: st.DataObject
) -> None:
    signed = signed_fields(fields, body, access_key=KEY, secret_key=SECRET)
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    name = data.draw(st.sampled_from(sorted(signed)))
    value = data.draw(st.text(max_size=30).filter(lambda text: text != signed[name]))
    changed = Command(code=code, ext_fields={**signed, name: value}, body=body)
    assert reason(ReceivedRequest.of(changed)) in {
        DenialReason.WRONG_SIGNATURE,
        DenialReason.NO_ACCESS_KEY,
        DenialReason.UNKNOWN_ACCESS_KEY,
    }
    longer = Command(code=code, ext_fields=signed, body=body + b"x")
    assert reason(ReceivedRequest.of(longer)) is DenialReason.WRONG_SIGNATURE
    bare = {key: one for key, one in signed.items() if key != "Signature"}
    unsigned = Command(code=code, ext_fields=bare, body=body)
    assert reason(ReceivedRequest.of(unsigned)) is DenialReason.WRONG_SIGNATURE


@pytest.mark.parametrize("access_key", ["", " ", None])
def test_an_empty_access_key_is_none(access_key: str | None) -> None:
    """Clients in C++ send the field without a value when they have no account."""
    fields = {"Signature": ""} | ({} if access_key is None else {"AccessKey": access_key})
    request = ReceivedRequest.of(Command(code=RequestCode.HEART_BEAT, ext_fields=fields))
    assert reason(request) is DenialReason.NO_ACCESS_KEY


def test_values_that_are_no_texts_are_signed_as_their_texts() -> None:
    """Clients in JavaScript and C++ write numbers and truths as such into a JSON header."""
    values: dict[str, Any] = {"topic": "t", "queueId": 3, "order": True, "OnsChannel": "ALIYUN"}
    texts = {"topic": "t", "queueId": "3", "order": "true", "OnsChannel": "ALIYUN"}
    signed = signed_fields(texts, b"", access_key=KEY, secret_key=SECRET)
    for queue_id, expected in ((3, None), (4, DenialReason.WRONG_SIGNATURE)):
        header = {
            "code": int(RequestCode.GET_MAX_OFFSET),
            "extFields": signed | values | {"queueId": queue_id},
            "flag": 0,
            "language": "OTHER",
            "opaque": 1,
            "serializeTypeCurrentRPC": "JSON",
            "version": 1,
        }
        request = receive(Frame(HeaderType.JSON, orjson.dumps(header), b""))
        assert reason(request) is expected


NAMES = st.sampled_from(["a", "b", "%DLQ%a", "other"])
PERMS = st.sampled_from(["PUB", "SUB", "PUB|SUB", "SUB|PUB", "DENY", "ANY", ""])


@given(
    topics=st.dictionaries(NAMES, PERMS),
    groups=st.dictionaries(NAMES, PERMS),
    default_topic=PERMS,
    default_group=PERMS,
    is_admin=st.booleans(),
    name=NAMES,
    needed=st.sampled_from([PUBLISH, SUBSCRIBE]),
)
def test_an_entry_goes_before_the_default_and_nothing_else_counts(
    topics: dict[str, str],
    groups: dict[str, str],
    default_topic: str,
    default_group: str,
    is_admin: bool,
    name: str,
    needed: int,
) -> None:
    text = orjson.dumps(
        {
            "accounts": [
                {
                    "accessKey": KEY,
                    "secretKey": SECRET,
                    "admin": is_admin,
                    "defaultTopicPerm": default_topic,
                    "defaultGroupPerm": default_group,
                    "topicPerms": [f"{key}={perm}" for key, perm in topics.items()],
                    "groupPerms": [f"{key}={perm}" for key, perm in groups.items()],
                }
            ]
        }
    )
    (account,) = read_document(text).accounts
    word = "PUB" if needed == PUBLISH else "SUB"
    assert account.may(topic(name, needed)) == (word in topics.get(name, default_topic).split("|"))
    has_group = "SUB" in groups.get(name, default_group).split("|")
    assert account.may(group(name)) == has_group
    assert account.may(topic(f"%RETRY%{name}", needed)) == has_group
    assert account.has_all_rights == (is_admin and not topics and not groups)
