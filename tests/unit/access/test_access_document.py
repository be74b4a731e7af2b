from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flintmq.access.access_document import (
    FILE_SIZE_MAX,
    encode_document,
    read_document,
    with_account,
    with_white_addresses,
    without_account,
)
from flintmq.access.access_errors import AccessFileError
from flintmq.access.accounts import PUBLISH, SUBSCRIBE, group, topic
from flintmq.model.data_version import DataVersion

SAMPLE: Final = b"""
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB
- accessKey: rocketmq2
  secretKey: 0123456789
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""
"""As the file looks that RocketMQ comes with."""


def test_the_file_that_rocketmq_comes_with_is_understood() -> None:
    document = read_document(SAMPLE)
    user, admin = document.accounts
    assert (user.access_key, user.secret) == ("RocketMQ", b"12345678")
    # A number keeps the zero that it begins with.
    assert (admin.secret, admin.is_admin, admin.has_all_rights) == (b"0123456789", True, True)
    assert admin.white_addresses.match("192.168.1.9")
    assert user.white_addresses.is_empty
    assert document.white_addresses == ("10.10.103.*", "192.168.0.*")
    assert user.may(topic("topicB", PUBLISH))
    assert user.may(topic("topicC", SUBSCRIBE))
    assert not user.may(topic("topicC", PUBLISH))
    assert not user.may(topic("topicA", PUBLISH | SUBSCRIBE))
    assert not user.may(topic("other", PUBLISH | SUBSCRIBE))
    assert user.may(group("other"))
    assert not user.may(group("groupA"))
    assert user.may(topic("%RETRY%groupC", SUBSCRIBE))
    assert not user.may(topic("%RETRY%groupA", SUBSCRIBE))
    assert "12345678" not in repr(document.accounts)


@pytest.mark.parametrize(
    "perms", ["topicPerms: ['%RETRY%g=SUB']", "groupPerms: [g=SUB]", "groupPerms: ['%RETRY%g=SUB']"]
)
def test_a_retry_topic_stands_for_its_group(perms: str) -> None:
    text = f"accounts: [{{accessKey: someKey1, secretKey: secret12, {perms}}}]"
    (account,) = read_document(text.encode()).accounts
    assert account.may(group("g"))
    assert account.may(topic("%RETRY%g", PUBLISH))
    assert not account.may(topic("g", SUBSCRIBE))


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [{accessKey: short, secretKey: long-enough}]",
        "accounts: [{accessKey: long-enough, secretKey: short}]",
        "accounts: [{secretKey: long-enough}]",
        "accounts: [text]",
        "accounts: text",
        "- a list",
        "accounts: [{accessKey: someKey1, secretKey: secret12, topicPerms: [noRight]}]",
        "accounts: [{accessKey: someKey1, secretKey: secret12, topicPerms: ['a=b=PUB']}]",
        "accounts: [{accessKey: someKey1, secretKey: secret12, topicPerms: [[a]]}]",
        "accounts: [{accessKey: someKey1, secretKey: secret12, whiteRemoteAddress: 1.2.3}]",
        "globalWhiteRemoteAddresses: [nowhere]",
        "accounts: [{accessKey: someKey1, secretKey: top-secret, admin: [",
        "!!python/object/apply:os.system ['true']",
        "dataVersion: [{counter: many}]",
        "a: &a [*a]\naccounts: *a",
        "accounts: [&a {accessKey: someKey1, secretKey: secret12}, *a]",
        " " * FILE_SIZE_MAX + "#",
        # Each of these would end the process if it were built.
        "[" * 500_000,
        "- " * 300_000,
        "{a: " * 200_000,
    ],
)
def test_what_cannot_be_meant_so_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(AccessFileError) as caught:
        read_document(text.encode())
    assert "secret" not in str(caught.value).replace("secretKey", "")


@pytest.mark.parametrize("text", ["", "# nothing", "accounts:", "accounts: []", "accounts: ~"])
def test_a_file_may_name_no_account(text: str) -> None:
    assert read_document(text.encode()).accounts == ()


def test_an_account_is_added_changed_and_removed() -> None:
    document = read_document(SAMPLE)
    said: dict[str, Any] = {"secretKey": "secret-7", "admin": False, "topicPerms": ["t=PUB"]}
    added = read_document(encode_document(with_account(document, "newUser1", said, 77)))
    assert [one.access_key for one in added.accounts] == ["RocketMQ", "rocketmq2", "newUser1"]
    assert added.accounts[:2] == document.accounts
    assert added.version == DataVersion(77, 1)
    changed = read_document(
        encode_document(with_account(added, "newUser1", {"defaultTopicPerm": "SUB"}, 78))
    )
    account = changed.accounts[2]
    # What was not said stays.
    assert (account.secret, account.topic_rights) == (b"secret-7", {"t": PUBLISH})
    assert account.default_topic_rights == SUBSCRIBE
    assert without_account(changed, "newUser1", 79).accounts == document.accounts
    white = read_document(encode_document(with_white_addresses(changed, ["10.9.9.*"], 80)))
    assert (white.white_addresses, white.version) == (("10.9.9.*",), DataVersion(80, 3))
    with pytest.raises(AccessFileError):
        with_account(document, "newUser2", {"secretKey": "short"}, 77)
    with pytest.raises(AccessFileError):
        with_white_addresses(document, ["nowhere"], 77)


_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=7, max_size=12).filter(
    lambda text: len(text.strip()) >= 7
)


@given(key=_TEXT, secret=_TEXT)
def test_keys_of_any_letters_survive_a_file(key: str, secret: str) -> None:
    document = with_account(read_document(b""), key.strip(), {"secretKey": secret}, 1)
    (account,) = read_document(encode_document(document)).accounts
    assert (account.access_key, account.secret) == (key.strip(), secret.strip().encode())


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_hostile_bytes_raise_only_an_access_file_error(content: bytes) -> None:
    try:
        read_document(content)
    except AccessFileError:
        return


@given(
    value=st.recursive(
        st.text(max_size=9),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["accounts", "accessKey", "secretKey", "topicPerms", "dataVersion", "x"]
                ),
                inner,
            )
        ),
    )
)
def test_any_yaml_is_understood_or_refused(value: Any) -> None:
    try:
        read_document(yaml.safe_dump({"accounts": value, "dataVersion": value}).encode())
    except AccessFileError:
        return
