"""The subscription groups of a broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.tables.state_keeper import StateKeeper
from flintmq.broker.tables.table_limits import TABLE_SIZE_MAX, TableLimitError, json_size
from flintmq.format.wire.bodies.groups import group_table_from_json, group_table_to_json
from flintmq.format.wire.name_limits import GROUP_LENGTH_MAX
from flintmq.model.data_version import DataVersion
from flintmq.model.group_config import GroupConfig
from flintmq.model.topics import LMQ_PREFIX, SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flintmq.broker.config import BrokerConfig
    from flintmq.store.files.state_file import StateFile

logger = logging.getLogger(__name__)

GROUP_COUNT_MAX: Final = 100_000
ENTRY_SIZE: Final = 400
"""Bytes that a group has in the file besides its name, which is there twice."""

_BUILT_IN: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


class GroupTable:
    """The subscription groups of one broker; `get` creates a missing one where that is allowed."""

    def __init__(
        self,
        file: StateFile,
        *,
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
        has_light_queues: bool = False,
    ) -> None:
        self._has_light_queues = has_light_queues
        self.keeper = StateKeeper(file, self._snapshot)
        self._config = config
        self._now_ms = now_ms
        self._groups = {name: GroupConfig(name=name) for name in _BUILT_IN}
        self.version = DataVersion()
        self._size = sum(map(_entry_size, self._groups))

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(list(self._groups.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def look(self, name: str) -> GroupConfig | None:
        """Return a group, None if there is none; those of light queues are there without a word."""
        if self._has_light_queues and name.startswith(LMQ_PREFIX):
            return GroupConfig(name=name)
        return self._groups.get(name)

    def get(self, name: str) -> GroupConfig | None:
        """Return a group, which is created if it is missing and may be created."""
        found = self.look(name)
        if found is not None:
            return found
        may = self._config().auto_create_group or name.startswith(SYSTEM_GROUP_PREFIX)
        if not may or not 0 < len(name) <= GROUP_LENGTH_MAX:
            return None
        made = GroupConfig(name=name)
        try:
            self.put(made)
        except TableLimitError as error:
            logger.warning("group not created: group=%s reason=%s", name, error)
            return None
        return made

    def _check_room(self, name: str) -> None:
        if len(self._groups) >= GROUP_COUNT_MAX:
            raise TableLimitError(f"there are {GROUP_COUNT_MAX} groups already")
        if self._size + _entry_size(name) > TABLE_SIZE_MAX:
            raise TableLimitError(f"the groups have {TABLE_SIZE_MAX} bytes already")

    def put(self, group: GroupConfig) -> None:
        """Add a group or replace its configuration; TableLimitError if there can be no more."""
        if group.name not in self._groups:
            if not 0 < len(group.name) <= GROUP_LENGTH_MAX:
                raise TableLimitError(f"a group has 1 to {GROUP_LENGTH_MAX} characters")
            self._check_room(group.name)
            self._size += _entry_size(group.name)
        self._groups[group.name] = group
        self.version = self.version.next(self._now_ms())
        self.keeper.changed()
        logger.info("group changed: %s", group)

    def delete(self, name: str) -> bool:
        """Forget a group; return whether it was there."""
        if self._groups.pop(name, None) is None:
            return False
        self._size -= _entry_size(name)
        self.version = self.version.next(self._now_ms())
        self.keeper.changed()
        logger.info("group deleted: group=%s", name)
        return True

    def replace_all(self, groups: Mapping[str, GroupConfig], version: DataVersion) -> bool:
        """Take over the table of a master; return whether it was another one."""
        if version == self.version:
            return False
        size = sum(map(_entry_size, groups))
        if len(groups) > GROUP_COUNT_MAX or size > TABLE_SIZE_MAX:
            raise TableLimitError(f"the master has {len(groups)} groups, more than there can be")
        self._groups, self._size, self.version = dict(groups), size, version
        self.keeper.changed()
        return True

    def load(self) -> None:
        """Read the file; its groups replace built-in ones of the same name."""
        state = self.keeper.file.load()
        if state.value is not None:
            groups, self.version = group_table_from_json(state.value)
            self._groups.update(groups)
            self._size = sum(map(_entry_size, self._groups))

    def _snapshot(self) -> Callable[[], Any]:
        groups, version = list(self._groups.values()), self.version
        return lambda: group_table_to_json(groups, version)


def _entry_size(name: str) -> int:
    return ENTRY_SIZE + 2 * json_size(name)
