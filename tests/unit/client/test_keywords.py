"""Settings objects and single keywords say the same, and a keyword that nobody knows is refused.

The type checker refuses it too: it would complain of each comment here that tells it to ignore a
call with a wrong keyword, if it had nothing to say against that call.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ForwardRef

import pytest

from flintmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ClientInstance,
    ClientOptions,
    ConsumeFrom,
    LitePullConsumer,
    LitePullSettings,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PushConsumer,
    PushSettings,
    SharingRules,
    UsageError,
)
from flintmq.client.assigning.sharing import SharingKeywords
from flintmq.client.consuming.push_settings import PushArguments, PushKeywords
from flintmq.client.messaging.messages import MessageKeywords
from flintmq.client.options import ClientKeywords
from flintmq.client.producing.producer_settings import ProducerArguments, ProducerKeywords
from flintmq.client.pulling.lite_pull_settings import LitePullArguments, LitePullKeywords

PUSH: dict[str, Any] = {"group": "g", "subscriptions": {"t": "*"}, "handler": print}


def _written(annotation: object) -> str:
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)


def _keywords(*kinds: type) -> dict[str, str]:
    return {
        name: _written(annotation)
        for kind in kinds
        for name, annotation in kind.__annotations__.items()
    }


@pytest.mark.parametrize(
    ("settings", "keywords", "required"),
    [
        (ClientOptions, ClientKeywords, set()),
        (LitePullSettings, LitePullKeywords, set()),
        (Message, MessageKeywords, {"topic", "body"}),
        (ProducerSettings, ProducerKeywords, set()),
        (PushSettings, PushKeywords, set()),
        (SharingRules, SharingKeywords, set()),
    ],
)
def test_single_keywords_are_the_fields_of_the_settings(
    settings: Any, keywords: type, required: set[str]
) -> None:
    fields = {
        field.name: _written(field.type)
        for field in dataclasses.fields(settings)
        if field.name not in required
    }
    assert _keywords(keywords) == fields


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (ProducerArguments, [ProducerKeywords, ClientKeywords]),
        (PushArguments, [PushKeywords, SharingKeywords, ClientKeywords]),
        (LitePullArguments, [LitePullKeywords, SharingKeywords, ClientKeywords]),
    ],
)
def test_no_keyword_belongs_to_two_settings(arguments: type, kinds: list[type]) -> None:
    assert _keywords(arguments) == _keywords(*kinds)
    assert len(_keywords(arguments)) == sum(len(_keywords(kind)) for kind in kinds)


@pytest.mark.parametrize(
    ("make", "near"),
    [
        (lambda: AsyncProducer(namserv="a:1"), "'namserv'; did you mean 'namesrv'"),  # type: ignore[call-arg]
        (lambda: AsyncProducer(grup="g"), "'grup'; did you mean 'group'"),  # type: ignore[call-arg]
        (lambda: Producer(retrys=1), "'retrys'; did you mean 'retries'"),  # type: ignore[call-arg]
        (
            lambda: AsyncPushConsumer(**PUSH, conkurrency=1),  # type: ignore[call-arg]
            "'conkurrency'; did you mean 'concurrency'",
        ),
        (lambda: PushConsumer(**PUSH, conkurrency=1), "did you mean 'concurrency'"),  # type: ignore[call-arg]
        (lambda: AsyncPullConsumer(group="g", namserv="a:1"), "did you mean 'namesrv'"),  # type: ignore[call-arg]
        (lambda: PullConsumer(group="g", namserv="a:1"), "did you mean 'namesrv'"),  # type: ignore[call-arg]
        (lambda: AsyncLitePullConsumer(group="g", autocommit=True), "did you mean 'auto_commit'"),  # type: ignore[call-arg]
        (lambda: LitePullConsumer(group="g", autocommit=True), "did you mean 'auto_commit'"),  # type: ignore[call-arg]
        (lambda: AsyncProducer(xyzzy=1), r"unknown keyword 'xyzzy'$"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_keyword_is_refused_with_the_nearest_known(
    make: Callable[[], object], near: str
) -> None:
    with pytest.raises(UsageError, match=near):
        make()


def test_settings_objects_do_what_keywords_do() -> None:
    settings = PushSettings(concurrency=4, batch_size=10)
    sharing = SharingRules(consume_from=ConsumeFrom.FIRST_OFFSET)
    options = ClientOptions(namesrv="a:1", namespace="NS")
    by_objects = AsyncPushConsumer(**PUSH, settings=settings, sharing=sharing, options=options)
    by_keywords = AsyncPushConsumer(
        **PUSH,
        concurrency=4,
        batch_size=10,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        namesrv="a:1",
        namespace="NS",
    )
    for one in (by_objects, by_keywords):
        assert (one.settings, one.rules, one.group) == (settings, sharing, "NS%g")


def test_a_single_keyword_comes_before_the_field_of_a_settings_object() -> None:
    settings = ProducerSettings(retries=5, send_timeout_ms=100)
    producer = AsyncProducer(
        settings=settings, retries=0, options=ClientOptions(namespace="A"), namespace="B"
    )
    assert producer.settings == ProducerSettings(retries=0, send_timeout_ms=100)
    assert producer.namespace == "B"


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="a ProducerSettings is expected, not a PushSettings"):
        AsyncProducer(settings=PushSettings())  # type: ignore[arg-type]


async def test_options_belong_to_a_client_that_is_shared() -> None:
    client = ClientInstance(ClientOptions(namesrv="127.0.0.1:1"))
    AsyncProducer(client=client)
    for options in ({"namesrv": "a:1"}, {"options": ClientOptions()}):
        given: dict[str, Any] = options
        with pytest.raises(UsageError, match="options belong to the client"):
            AsyncProducer(client=client, **given)
    await client.remoting.close()


def test_wrong_values_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="send_timeout_ms"):
        AsyncProducer(send_timeout_ms=0)
    with pytest.raises(UsageError, match="retries"):
        Producer(retries=-1)
    with pytest.raises(UsageError, match="total_count_max"):
        LitePullConsumer(group="g", total_count_max=0)
