"""The overview of a store as text."""

from collections.abc import Iterator

from flintmq.cli.output.text import plural, printable, size_text, time_text
from flintmq.offline import StoreStat
from flintmq.offline.scan import Tail


def stat_lines(stat: StoreStat) -> Iterator[str]:
    """Yield the lines of the overview."""
    yield f"store        {printable(str(stat.root))}"
    state = "present: a broker runs here, or was killed" if stat.has_abort else "absent"
    yield f"abort        {state}"
    yield from _log_lines(stat)
    yield from _queue_lines(stat)
    yield from _index_lines(stat)
    yield from _checkpoint_lines(stat)
    for name, size in stat.state_files.items():
        yield f"state        {printable(name)}, {size_text(size)}"
    for finding in stat.findings:
        where = printable(finding.file)
        yield f"{finding.severity.value:<12} {finding.kind.value}: {where}: {finding.reason}"


def _log_lines(stat: StoreStat) -> Iterator[str]:
    yield (
        f"log          {plural(stat.log_file_count, 'file')} of {stat.log_file_size} bytes, "
        f"{size_text(stat.log_size)}; {stat.unused_file_count} not used yet"
    )
    for directory in stat.log_directories:
        yield f"             in {printable(str(directory))}"
    yield f"             offsets {stat.log_start} to {stat.log_end}"
    first, last = time_text(stat.first_store_time), time_text(stat.last_store_time)
    yield f"             stored {first} to {last}"
    if stat.log_tail is not Tail.CLEAN:
        yield f"             behind its end: {stat.log_tail.value}"
    if stat.dispatched_end is not None:
        behind = stat.log_end - stat.dispatched_end
        word = f"{behind} bytes behind the log" if behind > 0 else "all of the log"
        yield f"             dispatched to {stat.dispatched_end}, {word}"


def _queue_lines(stat: StoreStat) -> Iterator[str]:
    yield (
        f"queues       {len(stat.queues)} of {plural(stat.topic_count, 'topic')}, "
        f"files of {stat.queue_file_size} bytes"
    )
    topic = None
    for queue in stat.queues:
        if queue.topic != topic:
            topic = queue.topic
            yield f"             {printable(topic)}"
        extension = f", extension {size_text(queue.extension_size)}" if queue.extension_size else ""
        yield (
            f"               {queue.queue_id:>4}: {queue.min_offset} to {queue.max_offset}, "
            f"{plural(queue.file_count, 'file')}{extension}"
        )


def _index_lines(stat: StoreStat) -> Iterator[str]:
    if stat.geometry is None:
        shape = "number of slots unknown"
    else:
        slots, entries, origin = stat.geometry
        shape = f"{slots} slots and {entries} entries each ({origin})"
    yield f"index        {plural(len(stat.index_files), 'file')}, {shape}"
    for file in stat.index_files:
        header = file.header
        if header is None:
            yield f"             {file.name}: no header"
            continue
        yield (
            f"             {file.name}: {header.index_count - 1} entries, "
            f"offsets {header.begin_offset} to {header.end_offset}, "
            f"stored {time_text(header.begin_timestamp)} to {time_text(header.end_timestamp)}"
        )


def _checkpoint_lines(stat: StoreStat) -> Iterator[str]:
    checkpoint = stat.checkpoint
    if checkpoint is None:
        yield f"checkpoint   {stat.checkpoint_problem}"
        return
    yield (
        f"checkpoint   log {_moment(checkpoint.physic)}, queues {_moment(checkpoint.logics)}, "
        f"index {_moment(checkpoint.index)}"
    )
    marks = checkpoint.marks
    if marks is None:
        yield "             no marks of FlintMQ, or void ones"
        return
    yield f"             log flushed to {marks.log_flushed}, dispatched to {marks.dispatched}"
    yield (
        f"             {plural(marks.queue_count, 'queue')} with {marks.unit_total} units; "
        f"index file {marks.index_file or '-'} at entry {marks.index_count}"
    )


def _moment(milliseconds: int) -> str:
    return time_text(milliseconds) if milliseconds else "never"
