"""What the tables of clients keep and do is bounded, whatever ids and groups a peer makes up."""

from pathlib import Path
from typing import Any, Final

from flintmq.broker.tables.client_tables import Client, ConsumerTable, ProducerTable
from flintmq.format.wire.bodies.heartbeat import ConsumerData, Heartbeat, encode_heartbeat
from flintmq.format.wire.codes import LanguageCode, RequestCode
from flintmq.model.topic_config import TopicConfig
from flintmq.remoting.fair_turns import FairTurns
from tests.kits.broker.broker_kit import consumer, eventually, site

COUNT: Final = 300


class Counted:
    """A peer that counts how often somebody looks for it in a table."""

    def __init__(self) -> None:
        self.looks = 0

    def __hash__(self) -> int:
        self.looks += 1
        return id(self)


class CountedName(str):
    """A name that counts how often any of its kind is looked for in a table."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        CountedName.looks += 1
        return str.__hash__(self)


class SlicingClock:
    """A clock that goes on by a slice whenever it is looked at."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.0007
        return self.seconds


def counted() -> Any:
    """Return a peer, as far as tables are concerned."""
    return Counted()


def client_on(peer: Any, client_id: str = "c", now_ms: int = 0) -> Client:
    return Client(peer, client_id, LanguageCode.JAVA, 409, now_ms)


async def test_of_the_ids_that_a_producer_gives_the_last_is_kept_and_goes_with_it(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for number in range(20):
            await wire.heartbeat(f"id-{number}", producer="producers")
        producers = here.broker.context.producers
        known = [number for number in range(20) if producers.by_id(f"id-{number}") is not None]
        assert known == [19]
        await wire.client.close()
        await eventually(lambda: not here.broker.server.connections)
        assert producers.by_id("id-19") is None


def test_a_producer_that_is_here_again_is_not_forgotten_with_its_old_connection() -> None:
    table, old, new = ProducerTable(), counted(), counted()
    table.register("g", client_on(old))
    table.register("g", client_on(new))
    table.lost(old)
    found = table.by_id("c")
    assert found is not None
    assert found.connection is new


def test_taking_out_a_peer_of_many_groups_takes_no_longer_for_the_groups_of_others() -> None:
    producers, consumers = (
        ProducerTable(),
        ConsumerTable(on_change=lambda _: None, on_empty=lambda _: None),
    )
    other, leaver = counted(), counted()
    for peer in (other, leaver):
        for number in range(COUNT):
            group = f"{id(peer)}-{number}"
            producers.register(group, client_on(peer))
            consumers.register(ConsumerData(group=group), client_on(peer))
    leaver.looks = other.looks = 0
    producers.lost(leaver)
    consumers.lost(leaver)
    assert leaver.looks < 30 * COUNT
    assert len(list(producers)) == len(list(consumers)) == COUNT
    # A peer without groups costs nothing.
    stranger = counted()
    producers.lost(stranger)
    consumers.lost(stranger)
    assert stranger.looks < 10


def test_of_two_connections_of_a_client_the_one_heard_of_last_is_asked() -> None:
    table, old, new = (
        ConsumerTable(on_change=lambda _: None, on_empty=lambda _: None),
        counted(),
        counted(),
    )
    data = ConsumerData(group="g")
    for peer, now_ms in ((old, 1), (new, 2)):
        table.register(data, client_on(peer, "c", now_ms))
    group = table.get("g")
    assert group is not None
    found = group.client("c")
    assert found is not None
    assert found.connection is new
    assert group.client("nobody") is None
    # Whichever came first: what counts is the last heartbeat.
    table.register(data, client_on(old, "c", 3))
    found = group.client("c")
    assert found is not None
    assert found.connection is old


async def test_topics_that_are_made_together_are_not_looked_at_for_each_of_them(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        topics = here.broker.context.topics
        CountedName.looks = 0
        for number in range(COUNT):
            topics.put(TopicConfig(name=CountedName(f"topic-{number}")))
        assert CountedName.looks < 30 * COUNT
        assert not topics.is_saved("topic-0")
        await eventually(lambda: topics.is_saved(f"topic-{COUNT - 1}"))
        topics.put(TopicConfig(name="one more"))
        assert topics.is_saved("topic-0")


async def test_a_heartbeat_of_very_many_groups_is_taken_in_in_slices(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        context = here.broker.context
        context.turns = FairTurns(now=SlicingClock())
        consumers = tuple(consumer(f"g{number}", "T") for number in range(50))
        beat = Heartbeat(client_id="c", producer_groups=("p1", "p2"), consumers=consumers)
        answer = await wire.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))
        assert answer.code == 0
        assert context.turns.postponed_count >= 10
        assert all(context.consumers.get(f"g{number}") is not None for number in range(50))
        assert len(context.producers.members("p2")) == 1
