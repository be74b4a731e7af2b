"""From a row to the message that is sent, with its mark."""

from flintmq.client.errors import UsageError
from flintmq.client.messaging.messages import Message
from flintmq.format.delay_levels import DelayLevels
from flintmq.format.topic_names import name_fault
from flintmq.spark.live.repeat_mark import ROW_MARK, RowMark
from flintmq.spark.sink.row_columns import OutgoingRow
from flintmq.spark.sink.sink_options import SinkOptions
from flintmq.spark.sink.task_time import MACHINE_TIME, SinkTime


class MessageMaker:
    """Makes the messages of one task, and counts its rows."""

    def __init__(
        self,
        query: str,
        batch: int,
        partition: int,
        options: SinkOptions,
        *,
        time: SinkTime = MACHINE_TIME,
    ) -> None:
        self._query = query
        self._batch = batch
        self._partition = partition
        self._levels = options.delay_levels
        self._time = time
        self.sequence = 0
        """The number of the row whose message is made next."""

    @property
    def turn(self) -> int:
        """What picks the queue of a row without a key: the same for each copy of the row."""
        return self._partition + self.sequence

    def make(self, row: OutgoingRow, floor: int) -> Message:
        """Return the message of the next row; ValueError if it cannot be one."""
        level = self._level(row)
        mark = RowMark(
            self._query,
            self._batch,
            self._partition,
            self.sequence,
            row.checksum(),
            floor,
            level,
        )
        try:
            message = Message(
                topic=row.topic,
                body=row.body,
                tag=row.tag,
                keys=(row.keys or "").split(),
                properties={**row.properties, ROW_MARK: mark.text},
                delay_level=level,
                flag=row.flag,
            )
        except UsageError as error:
            column = "properties" if name_fault(row.topic) is None else "topic"
            raise ValueError(f"the column {column}: {error}") from error
        self.sequence += 1
        return message

    def _level(self, row: OutgoingRow) -> int:
        if row.deliver_at is None:
            level = row.delay_level or 0
            if not 0 <= level <= self._levels.max_level:
                raise ValueError(
                    f"the column delayTimeLevel is {level}; "
                    f"levels are 0 to {self._levels.max_level}"
                )
            return level
        if row.delay_level:
            raise ValueError("the columns delayTimeLevel and deliverAt are both given")
        return level_until(row.deliver_at, self._time.now_ms(), self._levels)


def level_until(deliver_at: int, now_ms: int, levels: DelayLevels) -> int:
    """Return the delay level after which a message comes at its time or later, never earlier.

    RocketMQ 4.9 knows no other delays.  ValueError if no level is long enough.
    """
    wanted = deliver_at - now_ms
    if wanted <= 0:
        return 0
    found = [
        (delay, number) for number, delay in enumerate(levels.delays_ms, start=1) if delay >= wanted
    ]
    if not found:
        longest = max(levels.delays_ms, default=0) // 1000
        raise ValueError(
            f"the column deliverAt is {wanted // 1000} s ahead; "
            f"the longest delay of the broker is {longest} s"
        )
    return min(found)[1]
