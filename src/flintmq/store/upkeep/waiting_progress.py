"""How far waiting messages are delivered: noted by the owner, saved by any thread."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from flintmq.store.config import BrokerRole
from flintmq.store.errors import StoreError, StoreLoadError
from flintmq.store.files.state_file import StateFile
from flintmq.store.upkeep.waiting_state import STATE_NAME, WaitingState, WaitingStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.upkeep.waiting_state import WaitingQueueState

logger = logging.getLogger(__name__)


class WaitingProgress:
    """Keeps the state of waiting messages and its file."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        *,
        flush: Callable[[], None],
        files: Files,
        clock: Clock,
    ) -> None:
        self._config = config
        self._log = log
        self._flush = flush
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._file = StateFile(config.root / "config" / STATE_NAME, files=files)
        self._noted = WaitingState()
        self.saved = self._noted
        """What the file has."""
        self._save_lock = threading.Lock()
        self._housekept_ms = clock.now_ms()
        self._save_failed = False

    def load(self) -> WaitingState:
        """Return what an earlier run has saved.

        Raises:
            StateFileError: the file and its backup are damaged; starting from nothing would
                deliver everything again.
            StoreLoadError: the file holds something else.
        """
        value = self._file.load().value
        try:
            state = WaitingState() if value is None else WaitingState.from_json(value)
        except WaitingStateError as error:
            raise StoreLoadError(self._file.path, str(error)) from error
        if state.log_end > self._log.end_offset:
            logger.warning(
                "deliveries may be repeated: the log ends at %d, when they were noted it was %d",
                self._log.end_offset,
                state.log_end,
            )
            state = WaitingState()
        self._noted = self.saved = state
        return state

    def note(self, queues: Mapping[int, WaitingQueueState], cancelled: Mapping[str, int]) -> None:
        """Take down how far delivery is now."""
        noted = self._noted
        if queues != noted.queues or cancelled != noted.cancelled:
            self._noted = WaitingState(self._log.end_offset, queues, dict(cancelled))

    def persist(self) -> bool:
        """Save what was noted, if it is new; return whether it was saved.

        The log is flushed first: a note that survived a power failure while the delivered message
        did not would be a lost message.  Any thread may call this; it waits for the disk.
        """
        with self._save_lock:
            noted = self._noted
            if self._is_slave or noted is self.saved:
                return False
            self._flush()
            self._file.save(noted.to_json())
            self.saved = noted
            return True

    def try_persist(self) -> bool:
        """Save what was noted; a disk that refuses is reported once."""
        try:
            saved = self.persist()
        except StoreError as error:
            if not self._save_failed:
                logger.warning("waiting messages: state not saved: reason=%s", error)
            self._save_failed = True
            return False
        self._save_failed = False
        return saved

    def housekeep(self, now_ms: int) -> bool:
        """Save if it is time to; return whether that was done."""
        if 0 <= now_ms - self._housekept_ms < self._config.flush_delay_offset_interval_ms:
            return False
        self._housekept_ms = now_ms
        return self.try_persist()

    def saved_json(self) -> dict[str, Any] | None:
        """Return what was saved last, for slaves: what it tells of is on the disk.

        None means that no message ever waited.
        """
        return self.saved.to_json() if self.saved.queues else None

    def follow(self, value: Mapping[str, Any]) -> bool:
        """Save how far a master is, on its slave; return whether that was new and possible.

        What a master has delivered counts once this log has it, too.

        Raises:
            WaitingStateError: the master tells something else.
        """
        assert self._is_slave, "a master knows best how far it is"
        state = WaitingState.from_json(value)
        with self._save_lock:
            if state == self.saved or state.log_end > self._log.end_offset:
                return False
            self._file.save(state.to_json())
            self._noted = self.saved = state
            return True
