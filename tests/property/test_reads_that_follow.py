"""A reader that goes on where it was told passes over no message, however messages come.

They come alone and in groups, into buffers of the pool or into files; they are committed, flushed
and dispatched at any time between, and the log rolls.
"""

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.stored.record import decode_record
from flintmq.store.append_group.sends import AppendGroup, Sends, SendTarget
from flintmq.store.config import FlushMode
from flintmq.store.message_store import MessageStore
from flintmq.store.results import GetStatus
from tests.kits.store.store_kit import (
    BORN_HOST,
    BORN_MS,
    STORE_HOST,
    bodies,
    message,
    open_store,
    read,
)

MODES: Final[list[dict[str, Any]]] = [
    {},
    {"flush_mode": FlushMode.SYNC},
    {"transient_pool_enabled": True, "transient_pool_size": 1},
    {"transient_pool_enabled": True, "transient_pool_size": 3},
]
STEPS: Final = ("put", "group", "group", "commit", "flush", "dispatch", "read", "read")
GROUP_COUNT: Final = 3


class Followed:
    """A store whose one queue is read while messages come."""

    def __init__(self, mode: dict[str, Any]) -> None:
        self.store: MessageStore = open_store(**mode)
        self.sent: list[bytes] = []
        self.got: list[bytes] = []
        self.group_count = 0
        self._next = 0

    def put(self) -> None:
        self.sent.append(self._body())
        assert self.store.put(message(self.sent[-1])).ok

    def group(self) -> None:
        """Append a group if the store takes one now, else the same messages alone."""
        given_bodies = [self._body(number) for number in range(GROUP_COUNT)]
        count = len(given_bodies)
        target = SendTarget("T", 0)
        appended = self.store.append_group(
            Sends(
                [target] * count,
                [BORN_MS] * count,
                given_bodies,
                [b""] * count,
                [BORN_HOST] * count,
                b"",
            ),
            STORE_HOST,
        )
        if isinstance(appended, AppendGroup):
            self.group_count += 1
            self.sent += given_bodies
            return
        for _ in given_bodies:
            self.put()

    def _body(self, behind: int = 0) -> bytes:
        return b"%d " % (len(self.sent) + behind) + bytes(300)

    def read(self) -> None:
        result = read(self.store, offset=self._next)
        with result:
            self.got += [bytes(decode_record(view).body) for view in result]
            if result.status is not GetStatus.NO_MESSAGE_IN_QUEUE:
                self._next = result.next_begin_offset

    def take(self, step: str) -> None:
        own = {"put": self.put, "group": self.group, "read": self.read}
        (own.get(step) or getattr(self.store, step))()


@given(mode=st.sampled_from(MODES), steps=st.lists(st.sampled_from(STEPS), max_size=60))
@settings(max_examples=150, deadline=None)
def test_a_reader_gets_every_message_once_and_in_order(
    mode: dict[str, Any], steps: list[str]
) -> None:
    followed = Followed(mode)
    for step in steps:
        followed.take(step)
        assert followed.got == followed.sent[: len(followed.got)]
    for step in ("commit", "flush", "dispatch"):
        followed.take(step)
    while len(followed.got) < len(followed.sent):
        count = len(followed.got)
        followed.read()
        assert len(followed.got) > count, "nobody reads what was passed over"
    assert followed.got == followed.sent == bodies(followed.store)
    followed.store.close()


@pytest.mark.parametrize("mode", MODES)
def test_groups_are_appended_at_all(mode: dict[str, Any]) -> None:
    """Without this the test above would hold for a store that takes none."""
    followed = Followed(mode)
    for step in ("put", "commit", "flush", "dispatch", "group", "read"):
        followed.take(step)
    assert followed.group_count == 1
