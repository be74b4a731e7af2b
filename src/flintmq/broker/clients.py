"""Who is connected: producers and consumers by group, as their heartbeats say."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flintmq.format.bodies.heartbeat import ConsumerData
    from flintmq.format.codes import LanguageCode
    from flintmq.model.subscription import Subscription
    from flintmq.remoting.peer import Peer

logger = logging.getLogger(__name__)

EXPIRY_MS: Final = 120_000
"""A client that was not heard of for so long is gone."""


@dataclass(slots=True)
class Client:
    """One client on one connection."""

    connection: Peer
    client_id: str
    language: LanguageCode
    version: int
    updated_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group, and what it subscribes to; the last heartbeat wins."""

    name: str
    consume_type: str
    message_model: str
    consume_from: str
    members: dict[Peer, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def client(self, client_id: str) -> Client | None:
        """Return the member of that id."""
        return next((one for one in self.members.values() if one.client_id == client_id), None)

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
        """Take a heartbeat in; return whether members or topics have changed."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from = data.consume_from
        is_new = client.connection not in self.members
        self.members[client.connection] = client
        return self._update_subscriptions(data.subscriptions) or is_new


class ConsumerTable:
    """Consumer groups with members.  ``on_change`` hears of groups whose members changed."""

    def __init__(self, *, on_change: Callable[[ConsumerGroup], None]) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._on_change = on_change

    def get(self, group: str) -> ConsumerGroup | None:
        """Return a group that has members."""
        return self._groups.get(group)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def register(self, data: ConsumerData, client: Client) -> None:
        """Take a heartbeat in."""
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(
                data.group, data.consume_type, data.message_model, data.consume_from
            )
        if group.update(data, client):
            self._on_change(group)

    def unregister(self, group_name: str, connection: Peer) -> None:
        """Take a member out."""
        group = self._groups.get(group_name)
        if group is not None and group.members.pop(connection, None) is not None:
            self._member_gone(group)

    def _member_gone(self, group: ConsumerGroup) -> None:
        if group.members:
            self._on_change(group)
        else:
            del self._groups[group.name]

    def lost(self, connection: Peer) -> None:
        """Take out all members on a connection."""
        for group in self:
            self.unregister(group.name, connection)

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
        self._next: dict[str, int] = {}

    def __iter__(self) -> Iterator[tuple[str, list[Client]]]:
        for group, members in list(self._groups.items()):
            yield group, list(members.values())

    def register(self, group: str, client: Client) -> None:
        """Take a heartbeat in."""
        self._groups.setdefault(group, {})[client.connection] = client
        self._by_id[client.client_id] = client

    def unregister(self, group: str, connection: Peer) -> None:
        """Take a member out of a group."""
        members = self._groups.get(group)
        client = None if members is None else members.pop(connection, None)
        if members is not None and not members:
            del self._groups[group]
            self._next.pop(group, None)
        if client is not None and not any(connection in one for one in self._groups.values()):
            self._forget_id(client)

    def _forget_id(self, client: Client) -> None:
        known = self._by_id.get(client.client_id)
        # The same client may be here again on a newer connection.
        if known is not None and known.connection is client.connection:
            del self._by_id[client.client_id]

    def lost(self, connection: Peer) -> None:
        """Take out all members on a connection."""
        for group in list(self._groups):
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

    def pick(self, group: str) -> Client | None:
        """Return one member after the other, of those that can be reached."""
        members = [one for one in self.members(group) if not one.connection.is_closed]
        if not members:
            return None
        turn = self._next.get(group, 0)
        self._next[group] = turn + 1
        return members[turn % len(members)]
