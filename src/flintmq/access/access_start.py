"""Starting access control: its files found and read, and looked at for as long as it is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from flintmq.access.access_control import AccessControl
from flintmq.access.access_files import AccessFiles

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.access.request_classes import TopicAt

logger = logging.getLogger(__name__)


@asynccontextmanager
async def run_access_control(
    main: Path,
    *,
    white_list_grants: bool,
    reload_interval_ms: int,
    now_ms: Callable[[], int],
    topic_at: TopicAt = lambda offset: None,
    open_topics: frozenset[str] = frozenset(),
) -> AsyncIterator[AccessControl]:
    """Read the access files and yield what decides by them; they are watched meanwhile."""
    files = AccessFiles(main, now_ms=now_ms)
    accounts = await asyncio.to_thread(files.load)
    if not white_list_grants and not accounts.white_addresses.is_empty:
        logger.warning("globalWhiteRemoteAddresses grants nothing: aclWhiteListGrants=false")
    control = AccessControl(
        files,
        accounts,
        white_list_grants=white_list_grants,
        topic_at=topic_at,
        open_topics=open_topics,
    )
    watch = asyncio.create_task(control.watch(reload_interval_ms), name="watch access files")
    logger.info("access control on: file=%s accounts=%d", main, len(accounts.by_key))
    try:
        yield control
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
