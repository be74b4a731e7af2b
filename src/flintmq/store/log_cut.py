"""Ending a log earlier on purpose: what is cut off is set aside, and the views follow.

A broker that was a master and comes back as a slave may have records that its new master lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.store.files.unsynced import Unsynced
from flintmq.store.log.record_walk import LogWalk
from flintmq.store.recovery.index_repair import IndexRecovery
from flintmq.store.recovery.queue_repair import QueueRecovery
from flintmq.store.recovery.recovery_report import RecoveryReport
from flintmq.store.recovery.set_aside import set_aside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from flintmq.store.message_store import MessageStore


def cut_log(store: MessageStore, offset: int, facts: Mapping[str, Any]) -> list[Path]:
    """End the log at ``offset``, the end of a record; return the files with what was cut off.

    They are durable before anything is cut.  ``facts`` say why, in a file beside them.
    """
    log, config = store.log, store.config
    store.flush()
    made = set_aside(log, config.root, offset, facts, files=store.files)
    walk = LogWalk(config, log, delay_levels=store.delay_levels)
    report = RecoveryReport(clean_exit=True)
    with store.dispatcher.lock, store.appender.lock:
        if store.index is not None:
            IndexRecovery(store.index, log, walk, report).cut_below(offset)
        unsynced = Unsynced(store.files, store.queues.tops)
        bitmap_of = store.dispatcher.bitmap_of
        queues = QueueRecovery(
            store.queues, log, walk, report, bitmap_of=bitmap_of, unsynced=unsynced
        )
        queues.cut_behind(offset)
        unsynced.sync()
        log.files.truncate(offset, zero=True)
        log.files.flushed_where = log.files.committed_where = offset
        log.reset_tail()
        store.dispatcher.start_at(offset)
    store.checkpoint()
    return [one.path for one in made]
