"""Values of a wrong type are refused where users hand them in, with the name of the field.

The type checker refuses them too: it would complain of each comment here that tells it to ignore
a call, if it had nothing to say against that call.
"""

import pytest

from flintmq import (
    AsyncProducer,
    ClientOptions,
    ConsumeFrom,
    LitePullSettings,
    Message,
    MessageModel,
    ProducerSettings,
    PushSettings,
    SharingRules,
    UsageError,
)


def test_a_plain_text_is_no_list_of_keys() -> None:
    with pytest.raises(UsageError, match=r"write keys=\['order-1'\]"):
        Message(topic="t", body=b"x", keys="order-1")  # type: ignore[arg-type]
    assert Message(topic="t", body=b"x", keys=["order-1"]).wire_properties()["KEYS"] == "order-1"
    assert Message(topic="t", body=b"x", keys=("a", "b")).wire_properties()["KEYS"] == "a b"


@pytest.mark.parametrize("key", ["", "order 1"])
def test_a_key_has_no_blanks(key: str) -> None:
    with pytest.raises(UsageError, match="without blanks"):
        Message(topic="t", body=b"x", keys=[key])


def test_a_key_is_a_text() -> None:
    with pytest.raises(UsageError, match="a key must be str, not int"):
        Message(topic="t", body=b"x", keys=[1])  # type: ignore[list-item]


def test_a_body_is_bytes() -> None:
    with pytest.raises(UsageError, match=r"body must be bytes, not str.*encode"):
        Message(topic="t", body="text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="body must be bytes"):
        Message(topic="t", body=None)  # type: ignore[arg-type]


def test_properties_are_texts() -> None:
    with pytest.raises(UsageError, match="the property 'a' must be str, not int"):
        Message(topic="t", body=b"x", properties={"a": 1})  # type: ignore[dict-item]


def test_other_fields_of_a_message_have_their_types() -> None:
    with pytest.raises(UsageError, match="topic must be str"):
        Message(topic=7, body=b"x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tag must be str"):
        Message(topic="t", body=b"x", tag=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="delay_level must be int"):
        Message(topic="t", body=b"x", delay_level="3")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="flag must be from"):
        Message(topic="t", body=b"x", flag=1 << 31)


def test_where_a_group_starts_is_no_text() -> None:
    with pytest.raises(UsageError, match=r"consume_from must be one of .*FIRST_OFFSET.*'first'"):
        SharingRules(consume_from="first")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="model must be one of"):
        SharingRules(model="BROADCASTING")  # type: ignore[arg-type]
    rules = SharingRules(consume_from=ConsumeFrom.FIRST_OFFSET, model=MessageModel.BROADCASTING)
    assert not rules.is_clustering


def test_settings_have_their_types() -> None:
    with pytest.raises(UsageError, match="retries must be int, not str"):
        ProducerSettings(retries="2")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="retries must be int, not bool"):
        ProducerSettings(retries=True)
    with pytest.raises(UsageError, match="orderly must be bool, not str"):
        PushSettings(orderly="yes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pull_count must be int, not float"):
        LitePullSettings(pull_count=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="namesrv must be str, not int"):
        ClientOptions(namesrv=9876)  # type: ignore[arg-type]
    assert PushSettings(topic_count_max=None).topic_count_max is None


def test_the_name_of_a_group_is_a_text() -> None:
    with pytest.raises(UsageError, match="group must be str"):
        AsyncProducer(group=1)  # type: ignore[arg-type]
