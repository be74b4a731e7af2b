"""The filter bits of messages: what the Java broker noted, our broker notes too."""

from collections import Counter
from pathlib import Path

from flintmq.broker.tables.filter_table import FilterTable
from flintmq.filter.bloom import BloomFilter
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.state_file import StateFile
from tests.kits.golden.golden_sets import golden_set


def test_the_bits_of_a_message_are_those_of_java(tmp_path: Path) -> None:
    stored = golden_set("extended")
    path = tmp_path / "consumerFilter.json"
    path.write_bytes((stored.store / "config" / path.name).read_bytes())
    filters = FilterTable(
        StateFile(path, files=LocalFiles()),
        bloom=BloomFilter.of(error_percent=20, consumer_count=32),
        now_ms=lambda: 0,
        clean_span_ms=0,
    )
    filters.load()
    counts: Counter[str | None] = Counter()
    for message in stored.messages():
        bitmap = filters.bitmap(message["topic"], message["properties"])
        assert (None if bitmap is None else bitmap.hex()) == message["ext"]["filterBitMap"]
        counts[message["ext"]["filterBitMap"]] += 1
    assert counts[None] > 0
    assert len(counts) >= 4, counts
