"""What a broker does as a slave: it finds its master, follows its log and takes over its tables."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from flintmq.broker.replication.errors import AheadOfMasterError, OtherLogError
from flintmq.broker.replication.ha_client import HaClient, StreamEndedError
from flintmq.broker.replication.master_link import MasterLink, must_start_anew
from flintmq.broker.replication.replica_log import StoreReplica
from flintmq.broker.replication.table_sync import TableSync
from flintmq.errors import FlintError
from flintmq.remoting import RemotingClient
from flintmq.store.config import FlushMode
from flintmq.store.errors import StoreError
from flintmq.store.upkeep.queue_cleaning import TopicsKnown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from flintmq.broker.replication.master_link import MasterRange
    from flintmq.broker.replication.table_sync import FollowedTables
    from flintmq.format.wire.command import Command
    from flintmq.model.steps import Steps
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.store.message_store import MessageStore
    from flintmq.store.results import PutStatus

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""How long a slave waits before it connects again."""
REFUSED_RETRY_S: Final = 5.0
"""How long it waits after it has refused its master, or its store could take no more."""
LATE_FILE_RETRY_S: Final = 0.05
"""How long it waits for the next file of its log."""
SYNC_MS: Final = 10_000
"""How often tables are taken over, as in RocketMQ."""
SYNC_RETRY_MS: Final = 1000
CATCH_UP_S: Final = 5.0
"""How long a slave has to dispatch what its master has before it refuses to clean up."""
NEAR_SIZE: Final = 16 << 20
"""Bytes behind its master within which a slave keeps its views up to date."""
UNDISPATCHED_SIZE_MAX: Final = 1 << 30
"""Bytes of the log that may wait for dispatch while more of it comes."""


class Replica:
    """The slave's half of replication.  Use `run`."""

    def __init__(
        self,
        store: MessageStore,
        tables: FollowedTables,
        *,
        dispatch: Callable[[], None],
        turns: FairTurns,
        prepare: Callable[[Command], None] | None = None,
        tls: WatchedContext | None = None,
        stream_tls: WatchedContext | None = None,
    ) -> None:
        self._stream_tls = stream_tls
        self._store = store
        self._clock = store.clock
        self._dispatch = dispatch
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._log = StoreReplica(store)
        self._client = RemotingClient(prepare=prepare, tls=tls)
        self._sync = TableSync(tables, turns, self._client)
        self._static_address = store.config.ha_master_address or ""
        self._ha_address = self._static_address
        self._master = ""
        self._is_known = asyncio.Event()
        self._is_sync_wanted = asyncio.Event()
        self._queue_count = len(store.queues)
        self._stream: HaClient | None = None
        self._link: MasterLink | None = None
        self._was_followed = False
        """Whether the stream of now was seen to be that of the own log."""
        self._is_dispatching = False
        self._has_dispatched = asyncio.Event()
        self._is_flushing = False
        self._master_range: MasterRange | None = None
        self._current_ms = store.clock.now_ms()
        """When this slave was last known to have all that its master has."""
        self.trouble = ""
        """Why nothing is taken from the master at the moment; empty while all is well."""
        if self._ha_address:
            self._is_known.set()

    @classmethod
    @asynccontextmanager
    async def run(
        cls,
        store: MessageStore,
        tables: FollowedTables,
        *,
        dispatch: Callable[[], None],
        turns: FairTurns,
        prepare: Callable[[Command], None] | None = None,
        tls: WatchedContext | None = None,
        stream_tls: WatchedContext | None = None,
    ) -> AsyncIterator[Replica]:
        """Follow the master while the context lasts.

        ``tls`` is for requests, ``stream_tls`` for the stream of the log.
        """
        replica = cls(
            store,
            tables,
            dispatch=dispatch,
            turns=turns,
            prepare=prepare,
            tls=tls,
            stream_tls=stream_tls,
        )
        tasks = [
            asyncio.create_task(replica._follow_forever(), name="follow the master"),
            asyncio.create_task(replica._sync_forever(), name="take over tables"),
        ]
        try:
            yield replica
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await replica._client.close()

    def master_told(self, master: str | None, ha_address: str | None) -> bool:
        """Learn from a name server where the master is; return whether this slave follows it.

        What is not told stays as it was.  While nothing is followed, name servers are asked more
        often: another broker may have become the master.
        """
        if master:
            self._master = master
        if ha_address and not self._static_address:
            self._ha_address = ha_address
        if self._ha_address:
            self._is_known.set()
        return bool(self._master) and self._stream is not None

    # -- the log -----------------------------------------------------------------------------

    async def _follow_forever(self) -> None:
        while True:
            await self._is_known.wait()
            try:
                await self._follow()
            except StreamEndedError as error:
                self._note(str(error), logging.INFO)
                delay = RETRY_S
            except FlintError as error:
                is_late = isinstance(error, StoreError) and self._store.is_next_file_late
                delay = LATE_FILE_RETRY_S if is_late else REFUSED_RETRY_S
                self._note(str(error), logging.DEBUG if is_late else logging.ERROR)
            except Exception as error:
                logger.exception("replication failed")
                self.trouble = repr(error)
                delay = REFUSED_RETRY_S
            # Whoever reads from this slave now sees all that has come: more may never do.
            self._go_on_dispatching()
            await asyncio.sleep(delay)

    def _note(self, trouble: str, level: int) -> None:
        """Say what is wrong once, however often it happens in a row."""
        if trouble != self.trouble:
            logger.log(level, "replication stopped: master=%s reason=%s", self._ha_address, trouble)
        self.trouble = trouble

    async def _follow(self) -> None:
        """Stream from the master until that ends; it ends by an error."""
        store, config = self._store, self._store.config
        if config.flush_mode is FlushMode.SYNC:
            # What is promised with the first report has to be on the disk.
            await asyncio.to_thread(store.flush)
        start = await self._check_master()
        link = MasterLink(
            self._log,
            now_ms=self._monotonic_ms,
            heartbeat_ms=config.ha_heartbeat_interval_ms,
            silence_ms=config.ha_housekeeping_interval_ms,
        )
        self._link = link
        self._stream = HaClient(link, on_append=self._appended, tls=self._stream_tls)
        try:
            await self._stream.run(self._ha_address, link.request(start))
        finally:
            self._stream = None
            self._was_followed = False

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    async def _check_master(self) -> int | None:
        """Compare the ranges of both logs; return where an empty one begins, if that is known."""
        if not self._master:
            return None
        try:
            self._master_range = await self._sync.log_range(self._master)
        except FlintError:
            return None  # The stream itself shows what is wrong.
        if must_start_anew(self._log, self._master_range):
            await asyncio.to_thread(self._store.replica.start_anew)
        return self._master_range.start

    def _appended(self) -> None:
        """Dispatch what has come, and promise it when the promise holds."""
        self.trouble = ""
        store, link = self._store, self._link
        if link is not None and link.is_joined and link.received_end >= link.master_end:
            self._current_ms = self._clock.now_ms()
        if not self._was_followed and self._is_master_followed():
            self._was_followed = True
            self._is_sync_wanted.set()
        self._go_on_dispatching()
        if store.log.durable_reads and not self._is_flushing and self._log.end:
            self._is_flushing = True
            store.when_flushed(self._log.end, self._flushed_in_thread)

    def _go_on_dispatching(self) -> None:
        """Dispatch what waits, unless that is done already or has to wait for the log."""
        if (
            self._store.dispatcher.has_waiting
            and not self._is_dispatching
            and not self._takes_first
        ):
            self._is_dispatching = True
            work = self._turns.run(self._dispatch_steps(), "replication")
            work.add_done_callback(self._dispatched)

    @property
    def _takes_first(self) -> bool:
        """Whether dispatch waits: a slave that is far behind takes the log first, then its views.

        What is promised to senders is the log; the views can be made of it at any time.
        """
        if self._stream is None or self._store.dispatcher.behind >= UNDISPATCHED_SIZE_MAX:
            return False
        told = self._master_range
        if told is None:
            return self._stream.is_flooded
        return self._log.end + NEAR_SIZE < told.end

    def _dispatch_steps(self) -> Steps[None]:
        dispatcher = self._store.dispatcher
        while dispatcher.has_waiting and not self._takes_first:
            before = dispatcher.offset
            self._dispatch()
            if dispatcher.offset == before:
                return
            yield

    def _dispatched(self, work: asyncio.Future[None]) -> None:
        self._is_dispatching = False
        self._has_dispatched.set()
        if len(self._store.queues) != self._queue_count:
            # Messages of a new topic have come: its configuration must not wait long.
            self._queue_count = len(self._store.queues)
            self._is_sync_wanted.set()
        if not work.cancelled() and work.exception() is not None:
            logger.error("replicated records not dispatched", exc_info=work.exception())

    def _flushed_in_thread(self, status: PutStatus, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._flushed, status)

    def _flushed(self, status: PutStatus) -> None:
        self._is_flushing = False
        if not status.stored:
            return  # The disk has refused: nothing more is taken or promised.
        if self._stream is not None:
            self._stream.report()
        if self._log.promised_end < self._log.end or self._store.dispatcher.has_waiting:
            self._appended()

    # -- tables ------------------------------------------------------------------------------

    async def sync_now(self) -> None:
        """Take over the tables of the master, whenever that was done last.

        FlintError if it does not give them, or if its log is not known to be this one.
        """
        await self._sync.run(self._master, is_same=self._is_master_followed)

    async def known_topics(self) -> TopicsKnown:
        """Take over the tables of the master, and ask it for the queues of topics that it lacks.

        It waits until this slave has dispatched what its master had then.  FlintError if the master
        does not answer, or is not followed; TimeoutError if this slave is too far behind.
        """
        if not self._master or self._stream is None:
            raise OtherLogError("no master is followed")
        before = self._log.end
        await self.sync_now()
        if (await self._sync.progress(self._master))[1] < before:
            raise OtherLogError("the master has not entered all into its own queues yet")
        topics, gone = self._sync.topics, set[tuple[str, int]]()
        for queue in list(self._store.queues):
            # While a topic is being deleted it may be made again, and keep some of its queues.
            if queue.topic not in topics and not await self._sync.queue_end(
                self._master, queue.topic, queue.queue_id
            ):
                gone.add((queue.topic, queue.queue_id))
        after, _ = await self._sync.progress(self._master)
        async with asyncio.timeout(CATCH_UP_S):
            while self._store.dispatcher.offset < after:
                self._has_dispatched.clear()
                await self._has_dispatched.wait()
        return TopicsKnown(gone, before, after)

    def _is_master_followed(self) -> bool:
        """Whether the master has the log of this slave; one without a log has nothing to lose.

        A master that comes back with an empty disk must not take topics and groups from the only
        copy that is left.
        """
        if self._log.end == 0:
            return True
        return self._stream is not None and self._link is not None and self._link.is_joined

    async def _sync_forever(self) -> None:
        is_failing = False
        while True:
            delay_ms = SYNC_RETRY_MS
            if self._master and self._is_master_followed():
                try:
                    end = self._log.end
                    self._master_range = told = await self._sync.log_range(self._master)
                    if end > told.end:
                        # Another one is at its address now, and the stream has not noticed yet.
                        raise AheadOfMasterError(end, told.end)  # noqa: TRY301 - as all the rest
                    await self.sync_now()
                    delay_ms = SYNC_MS
                    is_failing = False
                except OtherLogError as error:
                    # The stream has ended meanwhile, and says why.
                    logger.debug("tables not taken over: %s", error)
                except FlintError as error:
                    if not is_failing:
                        logger.warning(
                            "tables not taken over: master=%s reason=%s", self._master, error
                        )
                    is_failing = True
                except Exception:
                    logger.exception("tables could not be taken over")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_ms / 1000):
                    await self._is_sync_wanted.wait()
            self._is_sync_wanted.clear()

    # -- status ------------------------------------------------------------------------------

    def runtime_info(self) -> dict[str, str]:
        """Return how far this slave is, for the runtime info."""
        link, told = self._link, self._master_range
        master_end = max(
            link.master_end if link is not None else 0, told.end if told is not None else 0
        )
        lag = max(master_end - self._log.end, 0)
        is_streaming = self._stream is not None and not self.trouble
        lag_ms = self._clock.now_ms() - self._current_ms if lag or not is_streaming else 0
        return {
            "haMasterAddress": self._ha_address,
            "haState": "streaming" if is_streaming else "stopped",
            "haTrouble": self.trouble,
            "haLagBytes": str(lag),
            "haLagSeconds": f"{max(lag_ms, 0) / 1000:.1f}",
        }
