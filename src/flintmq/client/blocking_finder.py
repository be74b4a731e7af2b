"""The blocking face of what producers and consumers have in common: finding messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from flintmq.client.loop_thread import InThread
from flintmq.client.searching.message_finder import MessageFinder
from flintmq.client.searching.message_search import END_OF_TIME_MS, PAGE_COUNT

if TYPE_CHECKING:
    from flintmq.client.messaging.messages import ReceivedMessage

_Finder = TypeVar("_Finder", bound=MessageFinder)


class FinderInThread(InThread[_Finder]):
    """A blocking face that finds messages by id and by key."""

    def view_message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """Return the message of an id; with ``topic`` its producer may have given the id."""
        return self._await(MessageFinder.view_message, message_id, topic=topic)

    def query_messages(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = PAGE_COUNT,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Return the newest messages that have a key, at most ``count_max`` of them."""
        return self._await(
            MessageFinder.query_messages,
            topic,
            key,
            count_max=count_max,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )
