"""What the sink makes of options, columns and rows, without a cluster."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from flintmq.client.messaging.messages import SendStatus
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ColumnError, OptionError
from flintmq.spark.live.repeat_mark import ROW_MARK, RowMark
from flintmq.spark.sink.chosen_queues import ChosenQueues
from flintmq.spark.sink.errors import SinkError
from flintmq.spark.sink.row_columns import OutgoingRow, check_columns, rows_of
from flintmq.spark.sink.row_messages import MessageMaker, level_until
from flintmq.spark.sink.sink_options import SinkOptions, parse_sink_options
from flintmq.spark.sink.task_time import SinkTime
from flintmq.spark.sink.writer import stream_writer

LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
NOW_MS = 1_700_000_000_000


def options(**more: str) -> SinkOptions:
    return parse_sink_options({"namesrv": "127.0.0.1:9876", **more})


def row(**fields: Any) -> OutgoingRow:
    return OutgoingRow(**({"topic": "orders", "body": b"x", "properties": {}} | fields))


def queues(*names: tuple[str, int]) -> ChosenQueues:
    return ChosenQueues({MessageQueue("orders", *name): 10 * at for at, name in enumerate(names)})


def one_row(columns: Mapping[str, Any], *, kafka: bool = False, **kinds: Any) -> OutgoingRow:
    arrays = {name: pa.array([value], kinds.get(name)) for name, value in columns.items()}
    (found,) = rows_of(pa.RecordBatch.from_pydict(arrays), kafka=kafka, topic=None)
    return found


def schema_of(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


# -- options --------------------------------------------------------------------------------------


def test_options_have_the_names_that_users_know() -> None:
    found = options(
        TOPIC="orders",
        producerGroup="spark",
        sendTimeoutMs="500",
        maxInFlight="7",
        maxInFlightBytes="1m",
        retries="0",
        acceptStatus="FLUSH_DISK_TIMEOUT",
        checkpointLocation="somewhere",
    )
    assert (found.topic, found.producer_group, found.send_timeout_ms) == ("orders", "spark", 500)
    assert (found.in_flight_max, found.in_flight_bytes_max, found.retries) == (7, 1 << 20, 0)
    assert found.accepted == {SendStatus.SEND_OK, SendStatus.FLUSH_DISK_TIMEOUT}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "t"}, "did you mean topic"),
        ({"topic": "a b"}, "characters other than"),
        ({"retries": "-1"}, "0 to 1000"),
        ({"maxMessagesPerSecond": "0.0"}, "a number above 0"),
        ({"maxMessagesPerSecond": "1e3"}, "a number above 0"),
        ({"acceptStatus": "SEND_MAYBE"}, "SEND_MAYBE"),
        ({"writeId": "a/b"}, "writeId is 1 to 64"),
        ({"batchId": "1"}, "writeId; that is missing"),
        ({"messageDelayLevel": "soon"}, "no duration"),
        ({"producerGroup": "a b"}, "name of a group"),
        ({"accessKey": "a"}, "belong together"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        options(**given)


def test_secrets_are_not_shown() -> None:
    shown = repr(options(accessKey="the-name", secretKey="the-secret"))
    assert "the-secret" not in shown
    assert "the-name" not in shown


@pytest.mark.usefixtures("spark")
def test_a_stream_has_no_name_but_that_of_its_query() -> None:
    given = {"namesrv": "127.0.0.1:9876", "topic": "orders", "writeId": "mine"}
    with pytest.raises(OptionError, match="a stream has the id of its query"):
        stream_writer(schema_of("body string"), given, overwrite=False)


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("topic string", "needs a column body"),
        ("body string", "option topic, or a column"),
        ("body int, topic string", "the column body is binary or string for the sink, not int"),
        ("body string, topic string, nix int", "no use for the column 'nix'"),
        (
            "body string, topic string, properties map<string,int>",
            "map<string,string> for the sink, not map<string,int>",
        ),
        ("body string, topic string, deliverAt date", "timestamp or timestamp_ntz or bigint"),
        ("body string, topic string, value string", "no use for the column 'value'"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_wrong_column_is_named(schema: str, words: str) -> None:
    with pytest.raises(ColumnError, match=words):
        check_columns(schema_of(schema), kafka=False, topic=None)


@pytest.mark.usefixtures("spark")
def test_columns_of_kafka_are_taken_as_its_source_gives_them() -> None:
    schema = (
        "key binary, value binary, topic string, partition int, offset long, "
        "timestamp timestamp, timestampType int, headers array<struct<key:string,value:binary>>"
    )
    check_columns(schema_of(schema), kafka=True, topic=None)
    with pytest.raises(ColumnError, match="needs a column value"):
        check_columns(schema_of("key binary"), kafka=True, topic="t")


def test_a_row_says_all_that_a_message_can_have() -> None:
    moment = datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC)
    found = one_row(
        {
            "body": "text",
            "topic": "orders",
            "tags": "A",
            "keys": "k1 k2",
            "properties": [("a", "1"), ("b", None), ("UNIQ_KEY", "old"), (ROW_MARK, "old")],
            "brokerName": "broker-a",
            "queueId": 3,
            "shardingKey": "customer",
            "deliverAt": moment,
            "flag": 5,
        },
        properties=pa.map_(pa.string(), pa.string()),
        deliverAt=pa.timestamp("us", tz="UTC"),
    )
    assert found == OutgoingRow(
        topic="orders",
        body=b"text",
        tag="A",
        keys="k1 k2",
        properties={"a": "1"},
        broker_name="broker-a",
        queue_id=3,
        sharding_key="customer",
        deliver_at=round(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000) + 1,
        flag=5,
    )


def test_tags_and_keys_of_the_map_count_where_there_is_no_column() -> None:
    found = one_row(
        {"body": b"x", "topic": "t", "properties": [("TAGS", "A"), ("KEYS", "k")]},
        properties=pa.map_(pa.string(), pa.string()),
    )
    assert (found.tag, found.keys, found.properties) == ("A", "k", {})


def test_a_row_of_kafka_keeps_its_key_and_headers() -> None:
    columns = {
        "key": b"customer",
        "value": b"x",
        "topic": "t",
        "partition": 2,
        "headers": [{"key": "a", "value": b"1"}, None],
    }
    found = one_row(columns, kafka=True)
    assert (found.keys, found.sharding_key, found.queue_id) == ("customer", "customer", 2)
    assert found.properties == {"a": "1"}
    with pytest.raises(ValueError, match="key is not UTF-8"):
        one_row(columns | {"key": b"\xff"}, kafka=True)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": None, "topic": "t"}, "null or empty"),
        ({"body": b"", "topic": "t"}, "null or empty"),
        ({"body": b"x", "topic": None}, "the column topic is null"),
    ],
)
def test_a_row_without_body_or_topic_is_refused(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        one_row(columns, body=pa.binary(), topic=pa.string())


@settings(deadline=None)
@given(
    change=st.sampled_from(
        [
            {"body": b"y"},
            {"topic": "other"},
            {"tag": "B"},
            {"keys": "k"},
            {"sharding_key": "s"},
            {"properties": {"a": "2"}},
        ]
    )
)
def test_whatever_changes_in_a_row_changes_its_checksum(change: dict[str, Any]) -> None:
    base = row(properties={"a": "1"})
    same = row(properties={"a": "1"})
    assert base.checksum() == same.checksum()
    assert base.checksum() != row(**({"properties": {"a": "1"}} | change)).checksum()


# -- messages -------------------------------------------------------------------------------------


def test_messages_are_marked_in_the_order_of_the_rows() -> None:
    maker = MessageMaker("q", 7, 2, options())
    texts = [maker.make(row(keys="a b"), 5).properties[ROW_MARK] for _ in range(2)]
    marks = [RowMark.parse(text) for text in texts]
    checksum = row(keys="a b").checksum()
    assert marks == [RowMark("q", 7, 2, number, checksum, 5, 0) for number in range(2)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "a b"}, "characters other than"),
        ({"properties": {"a": ""}}, "needs a name and a value"),
        ({"delay_level": 19}, "0 to 18"),
        ({"delay_level": -1}, "0 to 18"),
        ({"delay_level": 1, "deliver_at": 1}, "both"),
        ({"deliver_at": NOW_MS + 7_200_001}, "the longest delay of the broker is 7200 s"),
    ],
)
def test_a_row_that_is_no_message_is_refused(fields: dict[str, Any], words: str) -> None:
    maker = MessageMaker("q", 0, 0, options(), time=SinkTime(now_ms=lambda: NOW_MS))
    with pytest.raises(ValueError, match=words):
        maker.make(row(**fields), 0)
    assert maker.sequence == 0


@given(ahead_ms=st.integers(-10_000, 7_200_000))
def test_what_has_a_time_comes_never_before_it_and_by_the_shortest_level(ahead_ms: int) -> None:
    level = level_until(NOW_MS + ahead_ms, NOW_MS, LEVELS)
    if ahead_ms <= 0:
        assert level == 0
        return
    delay = LEVELS.delay_ms(level)
    assert delay >= ahead_ms
    assert all(other >= delay for other in LEVELS.delays_ms if other >= ahead_ms)


# -- placement ------------------------------------------------------------------------------------


def test_rows_without_a_key_take_turns_and_those_with_one_stay_together() -> None:
    chosen = queues(("a", 0), ("a", 1), ("b", 0))
    assert [chosen.choose(row(), number).queue_id for number in range(4)] == [0, 1, 0, 0]
    found = {chosen.choose(row(sharding_key="customer"), number) for number in range(9)}
    assert len(found) == 1


def test_a_broker_or_a_queue_id_narrows_the_choice() -> None:
    chosen = queues(("a", 0), ("a", 1), ("b", 0))
    assert {chosen.choose(row(queue_id=0), number).broker_name for number in range(2)} == {"a", "b"}
    assert chosen.choose(row(broker_name="b"), 1) == MessageQueue("orders", "b", 0)
    with pytest.raises(ValueError, match="no queue 1 on broker b"):
        chosen.choose(row(broker_name="b", queue_id=1), 0)


@given(
    st.dictionaries(
        st.tuples(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), st.integers(0, 9)),
        st.integers(0, 10**17),
        min_size=1,
    )
)
def test_a_choice_survives_being_kept_as_text(floors: dict[tuple[str, int], int]) -> None:
    chosen = ChosenQueues({MessageQueue("orders", *name): floor for name, floor in floors.items()})
    read = ChosenQueues.parse("orders", chosen.text)
    assert [*read.floors.items()] == [*chosen.floors.items()]


@pytest.mark.parametrize("text", ["", "a", "a:", "a:0", "a:0=1,", "a:0=1;", ":0=1", "a:x=1"])
def test_a_kept_text_that_is_no_choice_is_an_error(text: str) -> None:
    with pytest.raises(SinkError, match="mean nothing"):
        ChosenQueues.parse("orders", text)
