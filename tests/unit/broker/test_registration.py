"""Registrations: what is encoded when, and what is asked before with ``forceRegister=false``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.broker import broker_registrar
from flintmq.broker.broker_registrar import BrokerRegistrar
from flintmq.broker.tables import topic_table
from flintmq.broker.tables.topic_file_text import TopicFileText
from flintmq.format import fastjson
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.bodies.registration import (
    decode_registration,
    encode_in_steps,
    encode_registration,
)
from flintmq.format.wire.bodies.topics import topic_table_to_json, version_to_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.namesrv import QueryDataVersionResponse
from flintmq.model.data_version import DataVersion
from flintmq.model.steps import finish
from flintmq.model.topic_config import TopicConfig
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.remoting.fair_turns import FairTurns
from tests.kits.broker.broker_kit import Site, site
from tests.kits.broker.remoting_kit import HOST, serving


class NameServer:
    """Notes what it is asked; it knows what it is told to know."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.bodies: list[bytes] = []
        self.known: DataVersion | None = None

    def register(self, request: Request[Any]) -> Answer:
        self.codes.append(request.command.code)
        self.bodies.append(bytes(request.body))
        return Answer()

    def version(self, request: Request[Any]) -> Answer:
        self.codes.append(request.command.code)
        if self.known is None:
            raise RefusedError(1, "no such request")
        body = dumps_body(version_to_json(self.known))
        changed = bytes(request.body) != body
        return Answer(header=QueryDataVersionResponse(changed=changed), parts=[body])

    @property
    def processors(self) -> dict[int, Any]:
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.QUERY_DATA_VERSION: self.version,
        }


def registrar_of(here: Site, port: int, turns: FairTurns) -> BrokerRegistrar:
    context = here.broker.context
    return BrokerRegistrar(
        context.topics,
        config=lambda: replace(context.config, namesrv_addr=f"{HOST}:{port}"),
        address=context.address,
        ha_address="127.0.0.1:1",
        turns=turns,
    )


async def test_topics_are_encoded_only_when_they_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = 0

    def counted(*topics: Any) -> Any:
        nonlocal encoded
        encoded += 1
        return encode_in_steps(*topics)

    monkeypatch.setattr(broker_registrar, "encode_in_steps", counted)
    server = NameServer()
    async with site(tmp_path) as here, serving(server.processors) as namesrv:
        registrar = registrar_of(here, namesrv.ports[0], here.broker.context.turns)
        address = f"{HOST}:{namesrv.ports[0]}"
        for _ in range(3):
            await registrar._register(address, is_forced=True)
        assert (encoded, len(server.bodies)) == (1, 3)
        here.broker.context.topics.put(TopicConfig(name="new"))
        await registrar._register(address, is_forced=True)
        assert encoded == 2
        told = decode_registration(server.bodies[-1], compressed=False, release=409)
        assert "new" in told.topics
        await registrar._client.close()


async def test_a_name_server_is_asked_first_unless_registrations_are_forced(
    tmp_path: Path,
) -> None:
    server = NameServer()
    async with site(tmp_path) as here, serving(server.processors) as namesrv:
        topics = here.broker.context.topics
        registrar = registrar_of(here, namesrv.ports[0], here.broker.context.turns)
        address = f"{HOST}:{namesrv.ports[0]}"
        asked, registered = RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER
        # One that cannot answer is registered with.
        await registrar._register(address, is_forced=False)
        assert server.codes == [asked, registered]
        server.known = topics.version
        await registrar._register(address, is_forced=False)
        assert server.codes[2:] == [asked]
        topics.bump_version()
        await registrar._register(address, is_forced=False)
        assert server.codes[3:] == [asked, registered]
        await registrar._client.close()


def test_a_body_made_in_steps_is_the_same() -> None:
    topics = [TopicConfig(name=f"t{number}", order=number % 2 == 0) for number in range(100)]
    version = DataVersion(7, 9)
    assert finish(encode_in_steps(topics, version)) == encode_registration(topics, version)
    assert sum(1 for _ in encode_in_steps(topics, version)) >= 200


async def told_to(server: NameServer, registrar: BrokerRegistrar, address: str) -> set[str]:
    """Register; return the names of the topics that the name server has been told."""
    await registrar._register(address, is_forced=True)
    server.known = registrar._topics.version
    told = decode_registration(server.bodies[-1], compressed=False, release=409)
    assert told.version == server.known
    return set(told.topics)


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_registrar, "WHOLE_TABLE_MAX", 3)


@pytest.mark.usefixtures("few_are_many")
async def test_of_many_topics_those_that_have_changed_are_registered_alone(tmp_path: Path) -> None:
    server = NameServer()
    async with site(tmp_path) as here, serving(server.processors) as namesrv:
        topics = here.broker.context.topics
        registrar = registrar_of(here, namesrv.ports[0], here.broker.context.turns)
        address = f"{HOST}:{namesrv.ports[0]}"
        every = {topic.name for topic in topics}
        assert await told_to(server, registrar, address) == every
        topics.put(TopicConfig(name="new"))
        topics.put(TopicConfig(name="newer"))
        topics.put(TopicConfig(name="new", read_queue_count=3))
        assert await told_to(server, registrar, address) == {"new", "newer"}
        topics.put(TopicConfig(name="newest"))
        assert await told_to(server, registrar, address) == {"newest"}
        # What has not changed is only registered to show that the broker is alive: all of it.
        every |= {"new", "newer", "newest"}
        assert await told_to(server, registrar, address) == every
        topics.put(TopicConfig(name="more"))
        topics.delete("newest")
        assert await told_to(server, registrar, address) == every - {"newest"} | {"more"}
        await registrar._client.close()


@pytest.mark.usefixtures("few_are_many")
async def test_a_name_server_that_lacks_the_other_topics_is_told_all(tmp_path: Path) -> None:
    server = NameServer()
    async with site(tmp_path) as here:
        topics = here.broker.context.topics
        async with serving(server.processors) as namesrv:
            registrar = registrar_of(here, namesrv.ports[0], here.broker.context.turns)
            address = f"{HOST}:{namesrv.ports[0]}"
            every = await told_to(server, registrar, address)
            # It has forgotten the broker, or was told something else.
            for known in (None, DataVersion(1, 1)):
                server.known = known
                topics.put(TopicConfig(name=f"after {known}"))
                every |= {f"after {known}"}
                assert await told_to(server, registrar, address) == every
            # Behind another connection there may be another process, whatever that says.
            connection = registrar._client.ready(address)
            assert connection is not None
            connection.abort()
            topics.put(TopicConfig(name="last"))
            assert await told_to(server, registrar, address) == every | {"last"}
            await registrar._client.close()


async def test_of_more_changes_than_are_remembered_only_the_latest_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_table, "NEWS_COUNT_MAX", 3)
    async with site(tmp_path) as here:
        topics = here.broker.context.topics
        numbers = []
        for name in "abcde":
            numbers.append(topics.change_number)
            topics.put(TopicConfig(name=name))
        known = [topics.changed_since(number) for number in numbers]
        assert known[:2] == [None, None]
        assert [[one.name for one in some or ()] for some in known[2:]] == [
            ["e", "d", "c"],
            ["e", "d"],
            ["e"],
        ]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from('ab"Ω\ud800\t'), st.booleans()), max_size=6), max_size=5
    )
)
def test_the_file_is_the_same_as_if_all_of_it_were_encoded(
    files: list[list[tuple[str, bool]]],
) -> None:
    text = TopicFileText()
    kept: dict[tuple[str, bool], TopicConfig] = {}
    for number, names in enumerate(files):
        wanted = {name: TopicConfig(name=name, order=order) for name, order in names}
        topics = [kept.setdefault((one.name, one.order), one) for one in wanted.values()]
        version = DataVersion(number, number)
        whole = fastjson.dumps(topic_table_to_json(topics, version))
        assert text.encode(topics, version) == whole.encode()
