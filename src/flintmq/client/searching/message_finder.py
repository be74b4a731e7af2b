"""What producers and consumers have in common: they find messages by id and by key."""

from __future__ import annotations

from flintmq.client.client_user import ClientUser
from flintmq.client.errors import MessageNotFoundError
from flintmq.client.messaging.messages import ReceivedMessage
from flintmq.client.namespaces import unwrap, wrap
from flintmq.client.searching.message_search import (
    END_OF_TIME_MS,
    PAGE_COUNT,
    find_by_id,
    find_by_key,
    find_by_unique_id,
)


class MessageFinder(ClientUser):
    """A producer or a consumer that can look for messages which are stored already."""

    async def view_message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """Return the message of an id.

        With ``topic`` the id may be the one that its producer has given
        (``SendResult.message_id``) or the one that says where it is stored
        (``offset_message_id``); without it has to be the latter.  Of messages with one id the
        newest is returned.

        Raises:
            MessageNotFoundError: no broker has it.
            UsageError: the text is no id.
        """
        if topic is None:
            return self._as_seen(await find_by_id(self.client, message_id))
        try:
            found = await find_by_unique_id(self.client, wrap(self.namespace, topic), message_id)
        except MessageNotFoundError:
            # Both kinds of ids are texts of the same form: the other kind may be meant.
            return self._as_seen(await find_by_id(self.client, message_id))
        return self._as_seen(found[0])

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = PAGE_COUNT,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Return the newest messages that have a key, at most ``count_max`` of them.

        Only those count that were stored from ``begin_ms`` to ``end_ms``.

        Raises:
            TopicNotExistError: no broker has the topic.
        """
        found = await find_by_key(
            self.client,
            wrap(self.namespace, topic),
            key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            count_max=count_max,
        )
        return [self._as_seen(one) for one in found.messages]

    def _as_seen(self, message: ReceivedMessage) -> ReceivedMessage:
        """Return a message with the topic by which the user of a namespace knows it."""
        return message.with_topic(unwrap(self.namespace, message.topic))
