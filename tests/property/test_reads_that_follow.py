"""A reader that goes on where it was told passes over no message, however messages come.

They come alone and in groups, into buffers of the pool or into files; they are committed, flushed
and dispatched at any time between, and the log rolls.
"""

from typing import Any, Final

import pytest
from hypothesis import example, given, settings
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
    new_files,
    open_store,
    read,
)

MODES: Final[list[dict[str, Any]]] = [
    {},
    {"flush_mode": FlushMode.SYNC},
    {"transient_pool_enabled": True, "transient_pool_size": 1},
    {"transient_pool_enabled": True, "transient_pool_size": 3},
]
ALL_IN: Final = ("commit", "flush", "dispatch")
STEPS: Final = ("put", "group", "group", "group", *ALL_IN, "all in", "read", "read", "restart")
GROUP_COUNT: Final = 3


class Followed:
    """A store whose one queue is read while messages come."""

    def __init__(self, mode: dict[str, Any]) -> None:
        self._mode = mode
        self._files = new_files()
        self.store: MessageStore = open_store(self._files, **mode)
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

    def all_in(self) -> None:
        """Have all messages in their queues: from then on groups are taken again."""
        for step in ALL_IN:
            self.take(step)

    def restart(self) -> None:
        self.store.close()
        self.store = open_store(self._files, **self._mode)

    def take(self, step: str) -> None:
        own = {"put": self.put, "group": self.group, "read": self.read}
        own |= {"all in": self.all_in, "restart": self.restart}
        (own.get(step) or getattr(self.store, step))()


POOL_OF_ONE: Final = MODES[2]


@given(mode=st.sampled_from(MODES), steps=st.lists(st.sampled_from(STEPS), max_size=60))
@settings(max_examples=200, deadline=None)
# The last file has no buffer: another one has the only one, or it was there at the start.
@example(mode=POOL_OF_ONE, steps=[*["group"] * 9, "all in", "put", "all in", "group", "read"])
@example(mode=POOL_OF_ONE, steps=["put", "restart", "put", "all in", "group", "read"])
def test_a_reader_gets_every_message_once_and_in_order(
    mode: dict[str, Any], steps: list[str]
) -> None:
    followed = Followed(mode)
    for step in steps:
        followed.take(step)
        assert followed.got == followed.sent[: len(followed.got)]
    followed.all_in()
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
    for step in ("put", "all in", "group", "read"):
        followed.take(step)
    assert followed.group_count == 1
