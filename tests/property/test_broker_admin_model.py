"""Any order of sends, deletions, clean-ups, settings, expiry and restarts of a real broker.

What was acknowledged and not deleted is delivered, at its place, to whoever reads to the end.
Requests of one read are fed together, and the broker's loop takes as many turns between two reads
as the example says, so that deletions, which are done in slices, meet sends halfway.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.format.wire.codes import RequestCode
from tests.kits.broker.admin_model import FLUSHES, QUEUE_COUNT, TOPICS, AdminModel

DEADLINE_S: Final = 30
topics = st.sampled_from(TOPICS)
queue_ids = st.integers(0, QUEUE_COUNT - 1)
requests = st.one_of(
    st.tuples(st.just("send"), topics, queue_ids),
    st.tuples(st.just("send"), topics, queue_ids),
    st.tuples(st.just("send_batch"), topics, queue_ids, st.integers(1, 5)),
    st.tuples(st.just("create"), topics),
    st.tuples(st.just("delete"), topics),
    st.just(("delete_group",)),
    st.tuples(
        st.just("clean"),
        st.sampled_from([RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE]),
    ),
    st.tuples(
        st.just("change"),
        st.sampled_from([b"autoCreateTopicEnable=false", b"autoCreateTopicEnable=true"]),
    ),
)
steps = st.one_of(
    st.tuples(st.just("read"), st.lists(requests, min_size=1, max_size=8)),
    st.tuples(st.just("read"), st.lists(requests, min_size=1, max_size=8)),
    st.tuples(st.just("sends"), topics, queue_ids, st.integers(1, 40)),
    st.tuples(st.just("sends and a deletion"), topics, queue_ids, st.integers(1, 5)),
    st.tuples(st.just("turn"), st.integers(0, 12)),
    st.just(("settle",)),
    st.just(("expire",)),
    st.just(("check",)),
    st.just(("restart",)),
)


async def play(root: Path, flush: str, script: list[tuple[Any, ...]]) -> None:
    """Do the steps, then check."""
    model = AdminModel(root, flush)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(model.serving())
        model.feed(*map(model.create, TOPICS))
        for name, *arguments in script:
            if name == "read":
                model.feed(*(getattr(model, kind)(*more) for kind, *more in arguments[0]))
            elif name == "sends":
                topic, queue_id, count = arguments
                model.feed(*(model.send(topic, queue_id) for _ in range(count)))
            elif name == "sends and a deletion":
                topic, queue_id, count = arguments
                before = [model.send(topic, queue_id) for _ in range(count)]
                model.feed(*before, model.delete(topic))
            elif name == "turn":
                await model.turn(*arguments)
            elif name == "restart":
                await stack.aclose()
                await stack.enter_async_context(model.serving())
            else:
                await getattr(model, name)()
        model.feed(*(model.send(topic, queue_id) for topic in TOPICS for queue_id in (0, 1)))
        await model.check()
        await stack.aclose()
        await stack.enter_async_context(model.serving())
        await model.check()


def run_script(flush: str, script: list[tuple[Any, ...]]) -> None:
    async def limited(root: Path) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await play(root, flush, script)

    with tempfile.TemporaryDirectory(prefix="flintmq-model-") as root:
        asyncio.run(limited(Path(root)))


@pytest.mark.slow
@pytest.mark.parametrize("flush", FLUSHES)
def test_what_was_acknowledged_and_not_deleted_is_delivered(flush: str) -> None:
    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(script=st.lists(steps, min_size=3, max_size=25))
    def holds(script: list[tuple[Any, ...]]) -> None:
        run_script(flush, script)

    holds()
