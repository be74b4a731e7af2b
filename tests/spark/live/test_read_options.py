"""Options of live topics: what they mean, what is refused, and that secrets stay secret."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import OptionError
from flintmq.spark.jobs.stream.stream_start import start_text
from flintmq.spark.live.cluster_options import CONNECTION_OPTIONS
from flintmq.spark.live.live_choice import is_live
from flintmq.spark.live.live_options import (
    DEFAULT_GROUP,
    parse_batch,
    parse_columns,
    parse_stream,
)
from flintmq.spark.live.offset_choice import Wanted
from flintmq.spark.options.offset_bounds import EARLIEST, LATEST
from flintmq.spark.sink.sink_options import parse_sink_options

HERE = {"namesrv": "127.0.0.1:9876"}
ORDERS = HERE | {"subscribe": "orders"}
QUEUE = MessageQueue("orders", "a", 0)
SPARK_REDACTS = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Spark's default of spark.redaction.regex."""


@pytest.mark.parametrize(
    "options",
    [
        {"NameServer": "127.0.0.1:9876", "topic": "orders"},
        {"namesrvAddr": "127.0.0.1:9876", "SUBSCRIBE": " orders "},
        {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "orders,orders"},
    ],
)
def test_an_option_may_be_called_by_the_names_that_users_know(options: dict[str, str]) -> None:
    assert is_live(options)
    read = parse_batch(options)
    assert read.connection.namesrv == "127.0.0.1:9876"
    assert read.selection.topics == {"orders"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka.bootstrap.servers", "namesrv"),
        ("kafka.group.id", "group"),
        ("kafka.max.poll.records", "docs/coming-from-kafka.md"),
    ],
)
def test_options_for_kafka_are_answered_with_ours(name: str, words: str) -> None:
    given = {name: "k1:9092", "subscribe": "orders"}
    assert is_live(given)
    for parse in (parse_batch, parse_stream, parse_sink_options):
        with pytest.raises(OptionError, match=f"{re.escape(name)} is an option for Kafka") as found:
            parse(given if parse is not parse_sink_options else {name: "k1:9092"})
        assert words in str(found.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "the latest message, so new ones only"),
        ({"startingOffsets": "earliest"}, "the oldest message"),
        ({"startingTimestamp": "1000"}, "the messages of 1970-01-01T00:00:01.000+00:00 on"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "the places that startingOffsets names"),
    ],
)
def test_a_stream_says_from_where_it_reads(
    options: dict[str, str], words: str, tmp_path: Path
) -> None:
    assert start_text(str(tmp_path), ORDERS | options) == words
    (tmp_path / "offsets").mkdir()
    assert start_text(str(tmp_path), ORDERS | options) == words
    (tmp_path / "offsets" / "0").touch()
    checkpoint = f"where it was, by the checkpoint {tmp_path}"
    assert start_text(str(tmp_path), ORDERS | options) == checkpoint


def test_what_is_not_said_has_a_default() -> None:
    batch, stream = parse_batch(ORDERS), parse_stream(ORDERS)
    assert (batch.start.of(QUEUE), batch.end.of(QUEUE)) == (Wanted(EARLIEST), Wanted(LATEST))
    assert stream.read.start.of(QUEUE) == Wanted(LATEST)
    assert batch.fail_on_data_loss
    assert batch.group == DEFAULT_GROUP


def test_the_name_server_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    assert parse_batch({"subscribe": "orders"}).connection.namesrv == "10.0.0.1:9876;10.0.0.2:9876"


def test_directories_are_not_live() -> None:
    assert not is_live({"path": "/data/store", "topic": "orders"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (HERE, "one of subscribe, subscribePattern, assign; none is there"),
        (ORDERS | {"assign": "{}"}, "not subscribe and assign"),
        (ORDERS | {"namesrvAddr": "b:1"}, "given twice"),
        ({"subscribe": "orders"}, "no name server"),
        ({"namesrv": "nowhere", "subscribe": "orders"}, "nowhere"),
        (ORDERS | {"path": "/data"}, "either a cluster"),
        (ORDERS | {"subExpresion": "a"}, "did you mean subExpression"),
        (ORDERS | {"subExpression": " || "}, "no tag"),
        (ORDERS | {"subExpression": "a", "sqlFilter": "b = 1"}, "give one of them"),
        (ORDERS | {"maxOffsetsPerTrigger": "5"}, "says nothing about a batch"),
        (ORDERS | {"startingOffsets": "latest"}, "leaves nothing to read"),
        (ORDERS | {"endingOffsets": "earliest"}, "leaves nothing to read"),
        (ORDERS | {"startingOffsets": '{"orders": {"0": -3}}'}, "no offset: -3"),
        (ORDERS | {"startingOffsetsByTimestamp": '{"orders": 5}'}, "names no queue"),
        (ORDERS | {"retries": "1000"}, "from 0 to 100"),
        (ORDERS | {"group": "a b"}, "group"),
        (ORDERS | {"accessKey": "me"}, "belong together"),
        (
            ORDERS | {"useTLS": "true", "tls.caFile": "/nowhere.pem"},
            "TLS: /nowhere.pem: No such file",
        ),
        (HERE | {"subscribePattern": "(a"}, "no pattern"),
        (HERE | {"assign": '{"orders": [-1]}'}, "names no queues"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Mapping[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        parse_batch(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "it has no end"),
        ({"commitOffsets": "true"}, "needs the option group"),
    ],
)
def test_what_makes_no_sense_in_a_stream_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_stream(ORDERS | options)


def test_headers_belong_to_the_columns_of_kafka() -> None:
    with pytest.raises(OptionError, match="kafkaColumns"):
        parse_columns(ORDERS | {"includeHeaders": "true"})


def test_offsets_of_a_queue_go_before_those_of_all_brokers() -> None:
    text = '{"orders": {"a": {"0": 7}}, "others": {"0": 9}}'
    start = parse_batch(ORDERS | {"startingOffsets": text}).start
    assert start.of(QUEUE) == Wanted(7)
    assert start.of(MessageQueue("others", "b", 0)) == Wanted(9)
    assert start.of(MessageQueue("orders", "b", 0)) == Wanted(EARLIEST)


def test_times_go_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingTimestamp": "1970-01-01T00:00:01"}
    assert parse_stream(ORDERS | given).read.start.of(QUEUE) == Wanted(time_ms=1000)
    by_queue = {"startingOffsetsByTimestamp": '{"orders": {"a": {"0": 5}}}'}
    assert parse_batch(ORDERS | by_queue).start.of(QUEUE) == Wanted(time_ms=5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"orders": {"0": 1}}', "name the broker"),
        ('{"orders": {"c": {"0": 1}}}', "orders has no queue 0 of c"),
        ('{"orders": {"9": 1}}', "orders has no queue 9"),
    ],
)
def test_offsets_of_queues_that_are_not_there_are_refused(text: str, words: str) -> None:
    start = parse_batch(ORDERS | {"startingOffsets": text}).start
    with pytest.raises(OptionError, match=words):
        start.check([QUEUE, MessageQueue("orders", "b", 0)])


def test_a_pattern_does_not_mean_what_belongs_to_the_system() -> None:
    topics = ["orders", "orders-2", "%RETRY%g", "%DLQ%g", "TBW102", "rmq_sys_x", "broker-a"]
    everything = parse_batch(HERE | {"subscribePattern": ".*"}).selection
    assert everything.matching(topics, {"broker-a"}) == {"orders", "orders-2"}
    letters = parse_batch(HERE | {"subscribePattern": "%DLQ%.*"}).selection
    assert letters.matching(topics) == {"%DLQ%g"}
    assert parse_batch(HERE | {"subscribePattern": "orders"}).selection.matching(topics) == {
        "orders"
    }


def test_assign_takes_queues_of_one_broker_or_of_all() -> None:
    text = '{"orders": {"a": [0, 2]}, "others": [1]}'
    selection = parse_batch(HERE | {"assign": text}).selection
    assert selection.named_topics == {"orders", "others"}
    assert selection.takes(QUEUE)
    assert not selection.takes(MessageQueue("orders", "b", 0))
    assert selection.takes(MessageQueue("others", "b", 1))


def test_secrets_are_shown_nowhere() -> None:
    secret = {"accessKey": "hush-me", "secretKey": "hush-word", "securityToken": "hush-token"}
    stream = parse_stream(ORDERS | secret)
    assert "hush" not in f"{stream!r}{stream}"
    assert pickle.loads(pickle.dumps(stream.read)).connection.secret_key == "hush-word"
    for wrong in ({"retries": "x"}, {"unknown": "x"}, {"namesrv": "nowhere"}):
        with pytest.raises(OptionError) as raised:
            parse_stream(ORDERS | secret | wrong)
        assert "hush" not in str(raised.value)


@pytest.mark.parametrize("name", ["accessKey", "secretKey", "securityToken"])
def test_spark_redacts_the_options_that_hold_secrets(name: str) -> None:
    assert name in CONNECTION_OPTIONS
    assert SPARK_REDACTS.search(name)
