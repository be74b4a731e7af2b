"""Who is connected: producers and consumers by group, as their heartbeats say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.broker.tables.table_limits import ClientSizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flintmq.format.wire.bodies.heartbeat import ConsumerData
    from flintmq.format.wire.codes import LanguageCode
    from flintmq.model.subscription import Subscription
    from flintmq.remoting.peer import Peer

logger = logging.getLogger(__name__)

EXPIRY_MS: Final = 120_000
"""A client that sent no heartbeat for so long is gone."""

GROUP_SIZE: Final = 512
"""Bytes that are charged for a member of a group besides its texts."""

SUBSCRIPTION_SIZE: Final = 512
CODE_SIZE: Final = 64


class Client:
    """One client on one connection."""

    __slots__ = ("client_id", "connection", "language", "updated_ms", "version")

    def __init__(
        self,
        connection: Peer,
        client_id: str,
        language: LanguageCode,
        version: int,
        updated_ms: int,
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.updated_ms = updated_ms


class ConsumerGroup:
    """The members of a consumer group, and what it subscribes to; the last heartbeat wins."""

    __slots__ = (
        "consume_from",
        "consume_type",
        "members",
        "message_model",
        "name",
        "subscriptions",
    )

    def __init__(
        self, name: str, *, consume_type: str, message_model: str, consume_from: str
    ) -> None:
        self.name = name
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from = consume_from
        self.members: dict[Peer, Client] = {}
        self.subscriptions: dict[str, Subscription] = {}

    def client(self, client_id: str) -> Client | None:
        """Return the member of that id.

        A client that lost its connection in silence has two, until the old one is given up; only
        the one that was heard of last can be reached.
        """
        found = [one for one in self.members.values() if one.client_id == client_id]
        return max(reversed(found), key=lambda one: one.updated_ms, default=None)

    def _update_subscriptions(self, wanted: tuple[Subscription, ...]) -> bool:
        changed = False
        for one in wanted:
            known = self.subscriptions.get(one.topic)
            changed = changed or known is None
            if known is None or one.version > known.version:
                self.subscriptions[one.topic] = one
        for topic in self.subscriptions.keys() - {one.topic for one in wanted}:
            del self.subscriptions[topic]
            changed = True
        return changed

    def update(self, data: ConsumerData, client: Client) -> bool:
        """Apply a heartbeat; return whether members or topics have changed."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from = data.consume_from
        is_new = client.connection not in self.members
        self.members[client.connection] = client
        return self._update_subscriptions(data.subscriptions) or is_new


class ConsumerTable:
    """Consumer groups with members.

    ``on_change`` hears of groups whose members changed, ``on_empty`` of those without any.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[ConsumerGroup], None],
        on_empty: Callable[[str], None],
    ) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._on_change = on_change
        self._on_empty = on_empty
        self.sizes = ClientSizes[str]()
        """What the members on each connection made the broker remember."""

    def get(self, group: str) -> ConsumerGroup | None:
        """Return a group that has members."""
        return self._groups.get(group)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def register(self, data: ConsumerData, client: Client) -> None:
        """Apply a heartbeat; TableLimitError if its connection has too much already."""
        self.sizes.charge(client.connection, data.group, _kept_size(data, client))
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(
                data.group,
                consume_type=data.consume_type,
                message_model=data.message_model,
                consume_from=data.consume_from,
            )
        if group.update(data, client):
            self._on_change(group)

    def unregister(self, group_name: str, connection: Peer) -> None:
        """Take a member out."""
        self.sizes.release(connection, group_name)
        group = self._groups.get(group_name)
        if group is not None and group.members.pop(connection, None) is not None:
            self._member_gone(group)

    def _member_gone(self, group: ConsumerGroup) -> None:
        if group.members:
            self._on_change(group)
        else:
            del self._groups[group.name]
            self._on_empty(group.name)

    def lost(self, connection: Peer) -> None:
        """Take out all members on a connection."""
        for group in self.sizes.keys_of(connection):
            self.unregister(group, connection)

    def expire(self, now_ms: int) -> None:
        """Take out members that were silent for too long, and close their connections."""
        for group in self:
            for client in list(group.members.values()):
                if now_ms - client.updated_ms > EXPIRY_MS:
                    logger.warning("consumer gone: group=%s id=%s", group.name, client.client_id)
                    self.unregister(group.name, client.connection)
                    client.connection.close()

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic."""
        return [group.name for group in self if topic in group.subscriptions]


class ProducerTable:
    """Producer groups with members, and clients by their id."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Peer, Client]] = {}
        self._by_id: dict[str, Client] = {}
        self._ids: dict[Peer, str] = {}
        """The client id that each connection has given last: no other is kept for it."""
        self._next: dict[str, int] = {}
        self.sizes = ClientSizes[str]()
        """What the members on each connection made the broker remember."""

    def __iter__(self) -> Iterator[tuple[str, list[Client]]]:
        for group, members in list(self._groups.items()):
            yield group, list(members.values())

    def register(self, group: str, client: Client) -> None:
        """Apply a heartbeat; TableLimitError if its connection has too much already."""
        size = GROUP_SIZE + len(group) + len(client.client_id)
        self.sizes.charge(client.connection, group, size)
        self._groups.setdefault(group, {})[client.connection] = client
        if self._ids.get(client.connection, client.client_id) != client.client_id:
            self._forget_id(client.connection)
        self._ids[client.connection] = client.client_id
        self._by_id[client.client_id] = client

    def unregister(self, group: str, connection: Peer) -> None:
        """Take a member out of a group."""
        self.sizes.release(connection, group)
        members = self._groups.get(group)
        if members is not None:
            members.pop(connection, None)
            if not members:
                del self._groups[group]
                self._next.pop(group, None)
        if connection not in self.sizes:
            self._forget_id(connection)

    def _forget_id(self, connection: Peer) -> None:
        client_id = self._ids.pop(connection, "")
        known = self._by_id.get(client_id)
        # The same client may be here again on a newer connection.
        if known is not None and known.connection is connection:
            del self._by_id[client_id]

    def lost(self, connection: Peer) -> None:
        """Take out all members on a connection."""
        for group in self.sizes.keys_of(connection):
            self.unregister(group, connection)

    def expire(self, now_ms: int) -> None:
        """Take out members that were silent for too long, and close their connections."""
        for group, clients in self:
            for client in clients:
                if now_ms - client.updated_ms > EXPIRY_MS:
                    logger.warning("producer gone: group=%s id=%s", group, client.client_id)
                    self.unregister(group, client.connection)
                    client.connection.close()

    def members(self, group: str) -> list[Client]:
        """Return the members of a group."""
        return list(self._groups.get(group, {}).values())

    def by_id(self, client_id: str) -> Client | None:
        """Return the client of that id."""
        return self._by_id.get(client_id)

    def pick(
        self, group: str, may_be: Callable[[Client], bool] = lambda client: True
    ) -> Client | None:
        """Return a member that can be reached; each call takes the next one in turn."""
        open_members = (one for one in self.members(group) if not one.connection.is_closed)
        members = [one for one in open_members if may_be(one)]
        if not members:
            return None
        turn = self._next.get(group, 0)
        self._next[group] = turn + 1
        return members[turn % len(members)]


def _kept_size(data: ConsumerData, client: Client) -> int:
    """Return about how many bytes a heartbeat leaves behind for a group."""
    return (
        GROUP_SIZE
        + len(data.group)
        + len(client.client_id)
        + sum(
            SUBSCRIPTION_SIZE
            + len(one.topic)
            + len(one.expression)
            + sum(map(len, one.tags))
            + CODE_SIZE * (len(one.tags) + len(one.codes))
            for one in data.subscriptions
        )
    )
