"""The subscription groups of a broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.bodies.groups import group_table_from_json, group_table_to_json
from flintmq.model.data_version import DataVersion
from flintmq.model.group_config import GroupConfig
from flintmq.model.topics import SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flintmq.broker.config import BrokerConfig
    from flintmq.store.state_file import StateFile

logger = logging.getLogger(__name__)

GROUP_COUNT_MAX: Final = 100_000
GROUP_LENGTH_MAX: Final = 255
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
    """The subscription groups of one broker; lookups make them where that is allowed."""

    def __init__(
        self, file: StateFile, *, config: Callable[[], BrokerConfig], now_ms: Callable[[], int]
    ) -> None:
        self._file = file
        self._config = config
        self._now_ms = now_ms
        self._groups = {name: GroupConfig(name=name) for name in _BUILT_IN}
        self.version = DataVersion()

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(list(self._groups.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def look(self, name: str) -> GroupConfig | None:
        """Return a group without making it."""
        return self._groups.get(name)

    def get(self, name: str) -> GroupConfig | None:
        """Return a group, made on the way if it may be."""
        found = self._groups.get(name)
        if found is not None:
            return found
        may = self._config().auto_create_group or name.startswith(SYSTEM_GROUP_PREFIX)
        if not may or not 0 < len(name) <= GROUP_LENGTH_MAX:
            return None
        if len(self._groups) >= GROUP_COUNT_MAX:
            logger.warning("group not created: group=%s limit=%d", name, GROUP_COUNT_MAX)
            return None
        made = GroupConfig(name=name)
        self.put(made)
        return made

    def put(self, group: GroupConfig) -> None:
        """Add a group or replace its configuration."""
        self._groups[group.name] = group
        self.version = self.version.next(self._now_ms())
        self.persist()
        logger.info("group changed: %s", group)

    def delete(self, name: str) -> bool:
        """Forget a group; return whether it was there."""
        if self._groups.pop(name, None) is None:
            return False
        self.version = self.version.next(self._now_ms())
        self.persist()
        logger.info("group deleted: group=%s", name)
        return True

    def load(self) -> None:
        """Read the file; what it says goes before what is built in."""
        state = self._file.load()
        if state.value is not None:
            groups, self.version = group_table_from_json(state.value)
            self._groups.update(groups)

    def persist(self) -> None:
        """Write the file."""
        self._file.save(group_table_to_json(self._groups.values(), self.version))
