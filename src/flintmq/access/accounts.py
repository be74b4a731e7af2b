"""Accounts: who may send requests, and what each of them may do with topics and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flintmq.access.address_patterns import NO_ADDRESSES, AddressPatterns
from flintmq.model.topics import RETRY_PREFIX

PUBLISH: Final = 4
SUBSCRIBE: Final = 8
NOTHING: Final = 0
"""What an account may do; a right that a file denies, or misspells, is none."""

_RIGHTS: Final = {
    "PUB": PUBLISH,
    "SUB": SUBSCRIBE,
    "PUB|SUB": PUBLISH | SUBSCRIBE,
    "SUB|PUB": PUBLISH | SUBSCRIBE,
}


def parse_rights(text: str) -> int:
    """Return the rights that a text of an access file gives."""
    return _RIGHTS.get(text.strip(), NOTHING)


class Resource(NamedTuple):
    """A topic or a group that a request is about, and the rights of which one is needed."""

    is_group: bool
    name: str
    rights: int

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


def is_retry_topic(name: str) -> bool:
    """Return whether a topic is that in which a group gets failed messages again."""
    return name.startswith(RETRY_PREFIX)


def topic(name: str, rights: int) -> Resource:
    """Return a topic as a resource; the retry topic of a group is that group.

    Who may subscribe for a group may also put messages into its retry topic: that is how a
    consumer gives back what it could not handle.
    """
    if is_retry_topic(name):
        return Resource(True, name.removeprefix(RETRY_PREFIX), SUBSCRIBE)
    return Resource(False, name, rights)


def group(name: str) -> Resource:
    """Return a consumer group as a resource."""
    return Resource(True, name.removeprefix(RETRY_PREFIX), SUBSCRIBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account of an access file."""

    access_key: str
    secret: bytes = field(repr=False)
    is_admin: bool = False
    white_addresses: AddressPatterns = NO_ADDRESSES
    default_topic_rights: int = NOTHING
    default_group_rights: int = NOTHING
    topic_rights: Mapping[str, int] = field(default_factory=dict)
    group_rights: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_all_rights(self) -> bool:
        """Whether it is an administrator whose rights no entry of the file narrows."""
        return self.is_admin and not self.topic_rights and not self.group_rights

    def may(self, needed: Resource) -> bool:
        """Return whether the account has a right that is needed."""
        if needed.is_group:
            owned = self.group_rights.get(needed.name, self.default_group_rights)
        else:
            owned = self.topic_rights.get(needed.name, self.default_topic_rights)
        return owned & needed.rights != 0


class Accounts(NamedTuple):
    """The accounts of all files together."""

    by_key: Mapping[str, Account]
    white_addresses: AddressPatterns
