"""What the known pulls of one turn may take, however many connections they come from."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from flintmq.broker.processors import known_requests
from flintmq.broker.pulling import pull_fast_path
from flintmq.broker.pulling.pull_fast_path import PullFastPath
from flintmq.broker.sending import send_fast_path
from flintmq.format.wire.frame import HeaderType
from flintmq.model.message import PutMessage
from flintmq.remoting import turn_inbox
from flintmq.remoting.request_table import RequestSource
from flintmq.store.dispatch import Dispatcher
from flintmq.store.run_limit import RUN_COUNT_MAX
from tests.kits.broker.at_once import AtOnce
from tests.kits.broker.fed_broker import FedBroker, chunks_of, fed_broker
from tests.kits.broker.pulled_broker import SETTINGS, pull, send

PEER_COUNT: Final = 4
"""As many as the inbox handles in one turn before they have finished a frame."""
PULL: Final = chunks_of([[pull()]], HeaderType.JSON)[0]


@asynccontextmanager
async def pulled_broker(root: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[FedBroker]:
    """Run a broker that knows the pulls of some connections, and keeps them for their turn."""
    patch.setattr(turn_inbox, "PULLS_KEPT", 1 << 40)
    for module in (pull_fast_path, send_fast_path):
        patch.setattr(module, "LoadOnDemand", AtOnce)
    peers = ["127.0.0.1"] * PEER_COUNT
    async with fed_broker(root, SETTINGS, inbox=True, peers=peers) as fed:
        for chunk in chunks_of([[send(0, 10) for _ in range(9)]], HeaderType.JSON):
            await fed.feed_and_wait(chunk)
        # The first one makes the group, with which all that was known before is forgotten.
        for _ in range(3):
            for number in range(PEER_COUNT):
                fed.read(PULL, number)
            await fed.end_turn()
        yield fed


async def test_answers_of_one_turn_are_bounded_whoever_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left goes one by one, which ends with the time of a turn."""
    taken: list[tuple[int, int]] = []
    take = PullFastPath.take

    def noted(
        path: PullFastPath, connection: RequestSource, data: bytes, *size_max: int
    ) -> tuple[int, int]:
        taken.append(take(path, connection, data, *size_max))
        return taken[-1]

    async with pulled_broker(tmp_path, monkeypatch) as fed:
        monkeypatch.setattr(PullFastPath, "take", noted)
        before = [len(fed.answers_to(number)) for number in range(PEER_COUNT)]
        for size_max, count in ((1 << 20, PEER_COUNT), (1, 1)):
            monkeypatch.setattr(known_requests, "ANSWERED_SIZE_MAX", size_max)
            taken.clear()
            for number in range(PEER_COUNT):
                fed.read(PULL, number)
            await fed.end_turn()
            assert [size for size, _ in taken] == [len(PULL)] * count
            assert all(answered > 0 for _, answered in taken)
        sizes = [len(fed.answers_to(number)) for number in range(PEER_COUNT)]
        # All are answered, and alike.
        assert len({size - start for size, start in zip(sizes, before, strict=True)}) == 1


async def test_messages_that_are_entered_slice_by_slice_get_no_slice_for_each_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pulled_broker(tmp_path, monkeypatch) as fed:
        context = fed.broker.context
        host = context.store_host
        with monkeypatch.context() as patch:
            # They come faster than they can be entered.
            patch.setattr(Dispatcher, "run", lambda dispatcher: 0)
            for _ in range(20 * RUN_COUNT_MAX):
                message = PutMessage(
                    topic="T", queue_id=1, body=b"x", born_host=host, store_host=host
                )
                context.store.put(message)
        context.dispatch()
        assert context.is_dispatching
        behind = context.store.dispatcher.behind
        run_sizes: list[int] = []
        for number in range(PEER_COUNT):
            fed.read(PULL, number)
        run = Dispatcher.run

        def counted(dispatcher: Dispatcher) -> int:
            run_sizes.append(run(dispatcher))
            return run_sizes[-1]

        monkeypatch.setattr(Dispatcher, "run", counted)
        inbox = fed.broker.server.inbox
        assert inbox is not None
        inbox.handle()
        assert 0 < context.store.dispatcher.behind < behind
        assert len(run_sizes) == 1, "the one at the end of each turn"
