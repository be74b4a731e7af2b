"""The store that the benchmarks generate is what a broker would have written."""

from pathlib import Path

from bench.generate_store import StoreShape, generate
from flintmq.offline import find_store, rebuild
from tests.kits.spark.reading import make_reader, rows_of
from tests.kits.store.offline_stores import LEVELS, check, content

SHAPE = StoreShape(
    messages=3000,
    log_file_size=100_000,
    queue_file_size=400,
    slots=97,
    entries=1200,
)


def test_queues_and_index_are_those_of_the_log(tmp_path: Path) -> None:
    store, rebuilt = tmp_path / "store", tmp_path / "rebuilt"
    generate(store, SHAPE)
    report = check(store)
    assert report.is_sound, report
    assert report.record_count == 3000
    layout = find_store(store)
    rebuild(layout, rebuilt, queues=True, index=True, delay_levels=LEVELS)
    assert content(rebuilt / "consumequeue") == content(store / "consumequeue")
    # The files of an index are named after the time they were made at.
    made, expected = content(rebuilt / "index"), content(store / "index")
    assert len(expected) == 6
    assert [made[name] for name in sorted(made)] == [expected[name] for name in sorted(expected)]


def test_messages_follow_from_their_number(tmp_path: Path) -> None:
    generate(tmp_path / "store", SHAPE)
    rows = rows_of(make_reader(tmp_path / "store", splits=3))
    assert [row["keys"] for row in rows] == [f"order-{number:010}" for number in range(3000)]
    assert [row["topic"] for row in rows[:5]] == [f"BenchTopic{n}" for n in (0, 1, 2, 3, 0)]
    assert {len(row["body"]) for row in rows} == {128}
