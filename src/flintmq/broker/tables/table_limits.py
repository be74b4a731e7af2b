"""How much the tables of a broker may hold, by size and not only by number.

Peers choose the names, so entries of one kind differ in size a hundredfold.  A state file has a
limit too (`STATE_SIZE_MAX`): a table that outgrew it could not be saved any more, for nobody.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting.errors import RefusedError

if TYPE_CHECKING:
    from flintmq.remoting.peer import Peer

KeyT = TypeVar("KeyT", bound=Hashable)

TABLE_SIZE_MAX: Final = 56 << 20
"""Bytes that a table may have in its file; below what a state file can hold."""

CLIENT_SIZE_MAX: Final = 16 << 20
"""Bytes that the groups and subscriptions of one connection may take."""

ALL_CLIENTS_SIZE_MAX: Final = 256 << 20
"""Bytes that the groups and subscriptions of all connections may take together."""


class TableLimitError(RefusedError):
    """A table is full, or a peer has its share of it already."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


def json_size(text: str) -> int:
    """Return the bytes that a text has in a state file."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


class ClientSizes(Generic[KeyT]):
    """What the clients on each connection made the broker remember, in bytes."""

    def __init__(self) -> None:
        self._sizes: dict[Peer, dict[KeyT, int]] = {}
        self._totals: dict[Peer, int] = {}
        self.total_size = 0

    def charge(self, connection: Peer, key: KeyT, size: int) -> None:
        """Charge a connection for an entry, instead of what the entry had before.

        Raises TableLimitError, and changes nothing, if that is too much.
        """
        sizes = self._sizes.get(connection)
        growth = size - (0 if sizes is None else sizes.get(key, 0))
        own = self._totals.get(connection, 0) + growth
        if growth > 0 and own > CLIENT_SIZE_MAX:
            raise TableLimitError(
                f"the groups and subscriptions of this connection have more than "
                f"{CLIENT_SIZE_MAX} bytes"
            )
        if growth > 0 and self.total_size + growth > ALL_CLIENTS_SIZE_MAX:
            raise TableLimitError(
                f"the groups and subscriptions of all clients have more than "
                f"{ALL_CLIENTS_SIZE_MAX} bytes"
            )
        self._sizes.setdefault(connection, {})[key] = size
        self._totals[connection] = own
        self.total_size += growth

    def __contains__(self, connection: Peer) -> bool:
        return connection in self._sizes

    def keys_of(self, connection: Peer) -> list[KeyT]:
        """Return the entries that a connection is charged for."""
        return list(self._sizes.get(connection, ()))

    def release(self, connection: Peer, key: KeyT) -> None:
        """Take an entry off the account of a connection."""
        sizes = self._sizes.get(connection)
        if sizes is None or key not in sizes:
            return
        size = sizes.pop(key)
        self.total_size -= size
        self._totals[connection] -= size
        if not sizes:
            del self._sizes[connection], self._totals[connection]
