import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.client.errors import ResponseError, SystemBusyError
from flintmq.client.messaging.envelope import batch_items, split_by_size
from flintmq.client.messaging.messages import Message
from flintmq.client.messaging.unique_ids import UniqueIds
from flintmq.client.namespaces import unwrap, wrap
from flintmq.client.options import ClientOptions, Credentials
from flintmq.client.producing.fault_table import FaultTable, pause_ms
from flintmq.client.producing.queue_choice import RoundRobin, queue_for_key
from flintmq.client.routing.queue_lists import publish_queues, subscribe_queues
from flintmq.client.signing import sign
from flintmq.format.message_id import decode_unique_id
from flintmq.format.wire.command import Command
from flintmq.model import BrokerData, MessageQueue, QueueData, TopicRoute


def queues(*names: str, count: int = 2) -> list[MessageQueue]:
    return [MessageQueue("T", name, number) for name in names for number in range(count)]


def test_a_retry_goes_to_another_broker_if_there_is_one() -> None:
    turn = RoundRobin(0)
    both = queues("a", "b")
    for _ in range(10):
        assert turn.choose(both, avoid="a").broker_name == "b"
    assert turn.choose(queues("a"), avoid="a").broker_name == "a"


def test_slow_brokers_are_left_alone_for_a_while() -> None:
    now = [0]
    faults = FaultTable(now_ms=lambda: now[0])
    faults.note("a", 700, failed=False)
    faults.note("b", 10, failed=True)
    assert not faults.is_in_use("a")
    now[0] = 30_000
    assert faults.is_in_use("a")
    assert not faults.is_in_use("b")
    now[0] = 600_000
    assert faults.is_in_use("b")
    turn = RoundRobin(0)
    faults.note("a", 700, failed=False)
    chosen = {turn.choose(queues("a", "b"), is_in_use=faults.is_in_use) for _ in range(8)}
    assert chosen == set(queues("b"))


@pytest.mark.parametrize(
    ("latency", "pause"),
    [(0, 0), (549, 0), (550, 30), (999, 30), (1000, 60), (2000, 120), (3000, 180), (15_000, 600)],
)
def test_the_pause_grows_with_the_latency(latency: int, pause: int) -> None:
    assert pause_ms(latency) == pause * 1000


def test_a_sharding_key_leads_to_the_queue_that_java_chooses() -> None:
    assert queue_for_key(queues("a", count=8), "order-1001").queue_id == 7


@given(key=st.text(), count=st.integers(1, 50))
def test_every_key_has_a_queue(key: str, count: int) -> None:
    assert queue_for_key(queues("a", count=count), key) in queues("a", count=count)


def test_publish_and_subscribe_lists() -> None:
    def entry(name: str, perm: int) -> QueueData:
        return QueueData(broker_name=name, read_queue_count=1, write_queue_count=2, perm=perm)

    route = TopicRoute(
        queues=(entry("b", 6), entry("a", 6), entry("c", 4), entry("d", 2)),
        brokers=(
            BrokerData(cluster="C", broker_name="a", addresses={0: "x"}),
            BrokerData(cluster="C", broker_name="b", addresses={1: "y"}),
            BrokerData(cluster="C", broker_name="d", addresses={0: "z"}),
        ),
    )
    assert publish_queues("T", route) == queues("a", "d")
    assert subscribe_queues("T", route) == queues("a", "b", "c", count=1)
    ordered = TopicRoute(order_topic_conf="b:1;a:2")
    assert publish_queues("T", ordered) == [*queues("b", count=1), *queues("a")]


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "NS%orders"),
        ("NS%orders", "NS%orders"),
        ("%RETRY%g", "%RETRY%NS%g"),
        ("%DLQ%g", "%DLQ%NS%g"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_names_are_wrapped_once(name: str, wrapped: str) -> None:
    assert wrap("NS", name) == wrapped
    assert wrap(None, name) == name
    assert unwrap("NS", wrapped) == name.replace("NS%", "")


def test_unique_ids_follow_javas_layout() -> None:
    # 2024-05-17 08:30:15.123 in the machine's own zone, counted from the start of the month.
    ids = UniqueIds("10.1.2.3", now_ms=lambda: 1_715_934_615_123)
    first, second = decode_unique_id(ids.next()), decode_unique_id(ids.next())
    assert first.ip == bytes([10, 1, 2, 3])
    assert (first.counter, second.counter) == (0, 1)
    assert 0 <= first.elapsed_ms < 31 * 24 * 3600 * 1000
    assert first.elapsed_ms == second.elapsed_ms


def test_unique_ids_are_unique_over_a_wrap_of_the_counter() -> None:
    now = [1_715_934_615_123]
    ids = UniqueIds("10.1.2.3", now_ms=lambda: now[0])
    made = set()
    for number in range(70_000):
        now[0] += number % 1000 == 0
        made.add(ids.next())
    assert len(made) == 70_000


def test_a_request_is_signed_over_its_values_in_the_order_of_their_names() -> None:
    credentials = Credentials(access_key="RocketMQ", secret_key="12345678")
    command = Command(code=1, ext_fields={"topic": "TopicTest", "queueId": "0"})
    sign(command, credentials)
    assert command.ext_fields["Signature"] == "81TVNXFMLTfMm08aNFX+r9iZBrY="
    with_body = Command(code=1, ext_fields={"b": "2", "a": "1"}, body=b"body")
    sign(with_body, credentials)
    digest = hmac.new(b"12345678", b"RocketMQ12body", hashlib.sha1).digest()
    assert with_body.ext_fields["Signature"] == base64.b64encode(digest).decode()
    assert "12345678" not in repr(credentials)
    assert "12345678" not in repr(ClientOptions(namesrv="a:1", credentials=credentials))


def test_errors_come_by_their_code() -> None:
    busy = ResponseError.for_code(2, "[OVERLOAD]", address="a:1")
    assert isinstance(busy, SystemBusyError)
    assert busy.retriable
    assert "a:1" in str(busy)
    assert "SYSTEM_BUSY" in str(busy)
    unknown = ResponseError.for_code(4711, None)
    assert (type(unknown), unknown.code) == (ResponseError, 4711)


@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=60), limit=st.integers(200, 3000))
def test_a_list_is_cut_without_losing_or_moving_anything(sizes: list[int], limit: int) -> None:
    items = batch_items([Message(topic="t", body=b"x" * size) for size in sizes])
    batches = split_by_size(items, limit)
    assert [body for batch in batches for body in batch.bodies] == items.bodies
    assert {len(set(map(len, batch))) for batch in batches} == {1}
    assert all(batch.bodies for batch in batches)


def test_several_name_servers_may_be_given() -> None:
    assert ClientOptions(namesrv="a:1;b:2, a:1").name_servers == ("a:1", "b:2")


def test_several_unique_ids_go_on_where_single_ones_were() -> None:
    ids = UniqueIds("10.1.2.3", now_ms=lambda: 1_715_934_615_123)
    first = ids.next()
    several = ids.next_ones(0x10001).listed.split(",")
    assert [int(one[-4:], 16) for one in several[:3]] == [1, 2, 3]
    assert several[-1][-4:] == "0001"
    assert {one[:-4] for one in several} == {first[:-4]}
    assert ids.next()[-4:] == "0002"


def test_unique_ids_that_come_together_are_those_that_come_one_by_one() -> None:
    counts = [1, 2, 250, 3, 5, 256, 1, 300, 0xFF00, 16]
    together, single = (UniqueIds("10.1.2.3", now_ms=lambda: 7) for _ in range(2))
    for count in counts:
        series = together.next_ones(count)
        one_by_one = [single.next() for _ in range(count)]
        assert [one[-4:] for one in series.listed.split(",")] == [one[-4:] for one in one_by_one]
        assert len({len(tail) for tail in series.tails}) == 1
