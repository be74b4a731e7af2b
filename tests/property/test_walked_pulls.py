"""Pulls that machine code cuts from reads get the answers that the processor gives."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintmq.broker.pulling import pull_fast_path
from flintmq.broker.pulling.pull_fast_path import PullFastPath
from flintmq.broker.sending import send_fast_path
from flintmq.format.wire.frame import HeaderType
from flintmq.remoting import turn_inbox
from flintmq.remoting.request_table import RequestSource
from flintmq.store.append_group import encoder_choice
from flintmq.store.reading import read_engines
from tests.kits.broker.at_once import AtOnce
from tests.kits.broker.fed_broker import chunks_of, fed_broker, without_host
from tests.kits.broker.pulled_broker import LEFT_AFTER, SETTINGS, pull, send
from tests.kits.broker.remoting_kit import run_within

pulls = st.builds(
    pull,
    queueId=st.sampled_from(["0", "0", "1", "2", "9", "00"]),
    queueOffset=st.integers(0, 45).map(str) | st.sampled_from(["-1", "03", "9" * 19, "x", ""]),
    commitOffset=st.integers(0, 9).map(str) | st.sampled_from(["-1", "x"]),
    sysFlag=st.sampled_from(["4", "4", "5", "6", "0"]),
    subscription=st.sampled_from(["*", "*", "*", "A"]),
)
conversations = st.lists(st.lists(pulls, min_size=1, max_size=8), min_size=2, max_size=6)


async def serve(
    root: Path, chunks: list[bytes], *, walked: bool
) -> tuple[bytes, bytes, dict[str, Any]]:
    """Feed a broker with reads; return its answers, its address and what it has counted."""
    async with fed_broker(root, SETTINGS, gather=walked, inbox=walked) as fed:
        for chunk in chunks:
            fed.feed(chunk)
        context = fed.broker.context
        left = {name: getattr(context.store.statistics, name) for name in LEFT_AFTER}
        left |= {"held": context.held.count, "offsets": dict(context.offsets.queues("g", "T"))}
        left["fetched"] = dict(context.fetched.queues("g", "T"))
        left["pulled"] = context.statistics.get_total
        return fed.answers, context.store_host, left


def assert_alike(chunks: list[bytes], *, at_once: bool) -> None:
    """Serve some reads by machine code and by the processor, and compare."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn_inbox, "PULLS_KEPT", 0 if at_once else 1 << 40)
        for module in (pull_fast_path, send_fast_path, encoder_choice, read_engines):
            patch.setattr(module, "LoadOnDemand", AtOnce)
        one = run_within(serve(Path(name, "walked"), chunks, walked=True), 60)
        other = run_within(serve(Path(name, "plain"), chunks, walked=False), 60)
    (answers, host, left), (plain, other_host, other_left) = one, other
    assert without_host(host, answers) == without_host(other_host, plain)
    assert left == other_left


FILLED: Final = [send(number % 3 % 2, 10 if number % 5 else 300) for number in range(60)]


@given(
    reads=conversations,
    header_type=st.sampled_from(HeaderType),
    cuts=st.lists(st.floats(0, 1), max_size=3),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=2),
    at_once=st.booleans(),
)
@settings(
    max_examples=40,
    deadline=None,
    # Two brokers for each example: making a failing one small would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_walked_pulls_are_answered_alike(
    reads: list[list[dict[str, Any]]],
    header_type: HeaderType,
    cuts: list[float],
    flips: list[tuple[float, int]],
    at_once: bool,
) -> None:
    chunks = chunks_of([FILLED, *[[pull(), pull(queueId="1")]] * 2, *reads], header_type)
    last = bytearray(chunks[-1])
    for share, bits in flips:
        last[int(share * (len(last) - 1))] ^= bits
    ends = sorted({int(share * len(last)) for share in cuts} | {len(last)})
    pieces = [bytes(last[start:end]) for start, end in pairwise([0, *ends])]
    assert_alike([*chunks[:-1], *filter(None, pieces)], at_once=at_once)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("header_type", HeaderType)
def test_a_pull_that_was_seen_before_is_answered_by_machine_code(
    header_type: HeaderType, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = PullFastPath.take

    def counted(
        path: PullFastPath, connection: RequestSource, data: bytes, *size_max: int
    ) -> tuple[int, int]:
        sizes = take(path, connection, data, *size_max)
        taken.append(sizes[0])
        return sizes

    monkeypatch.setattr(PullFastPath, "take", counted)
    offsets = [pull(queueOffset=str(offset), commitOffset="7") for offset in (0, 3, 12)]
    # The first one makes the group, with which all that was known before is forgotten.
    chunks = chunks_of([FILLED, [pull()], [pull()], offsets, offsets[1:]], header_type)
    assert_alike(chunks, at_once=at_once)
    # What is not known when it comes is offered once more at the end of the turn.
    assert taken == [0] * (2 if at_once else 1) + [len(chunks[3]), len(chunks[4])]


@pytest.mark.parametrize("at_once", [False, True])
def test_the_end_of_a_queue_is_left_to_the_ordinary_way_from_there_on(at_once: bool) -> None:
    known, at_the_end = pull(sysFlag="6"), pull(sysFlag="6", queueOffset="40")
    reads = [FILLED, [known], [known], [known, at_the_end, known], [send(0, 10)], [known]]
    assert_alike(chunks_of(reads, HeaderType.JSON), at_once=at_once)
