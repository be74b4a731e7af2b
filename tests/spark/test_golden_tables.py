"""A golden store as a table holds what the Java classes say of each message."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flintmq.spark import CorruptLogError
from tests.kits.golden.engine import copy_store
from tests.kits.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    damaged_set,
    golden_set,
)
from tests.kits.spark.reading import (
    SPLITS,
    as_expected,
    load,
    make_reader,
    offsets,
    read,
    rows_of,
    split_size,
)

Json = dict[str, Any]

OTHER_FIELDS = {"storedBodyLength", "dispatchTagsCode", "tagsCode", "ext", "crcOk"}
"""What the table does not tell: it shows the log, and the body as the producer sent it."""

CHECKSUM = "the body does not match its checksum"
TAIL = "behind the end of the log: "

DAMAGE = {
    "body-byte-flipped-first-file": (15178, 590, CHECKSUM),
    "body-byte-flipped-last-file": (242602, 553, CHECKSUM),
    "body-byte-flipped-previous-file": (206232, 3131, CHECKSUM),
    "record-length-wrong": (242602, 553, "size 554 leaves 95 bytes for properties of 94"),
}
LEFT_BEHIND = {
    "garbage-after-end": (249817, 200, TAIL + "no magic code: 0x5ef35f30"),
    "garbage-after-gap": (249881, 200, TAIL + "nothing was written here"),
    "tail-record-half-zero": (249479, 169, TAIL + "size 338 leaves 105 bytes for properties of 0"),
    "tail-record-zero-from-30": (
        249479,
        28,
        TAIL + "size 338 leaves 247 bytes for properties of 0",
    ),
}
END = {
    "consumequeue-ahead": 247099,
    "last-commitlog-file-lost": 229376,
    "tail-record-half-zero": 249479,
    "tail-record-zero-from-30": 249479,
}
"""Where the log ends when it is not the end of ``rolled``."""


def expected_rows(name: str) -> list[Json]:
    return [
        {field: value for field, value in one.items() if field not in OTHER_FIELDS}
        for one in golden_set(name).messages()
    ]


def whole_rows(name: str) -> list[Json]:
    """Return the messages of ``rolled`` that a damage has left whole."""
    damaged_at = DAMAGE.get(name, (-1,))[0]
    end = END.get(name, 1 << 62)
    return [
        row
        for row in expected_rows("rolled")
        if row["physicalOffset"] != damaged_at and row["physicalOffset"] < end
    ]


def assert_as_expected(rows: list[Json], name: str) -> None:
    assert [as_expected(row) for row in rows] == expected_rows(name)
    for row in rows:
        properties = dict(row["properties"])
        assert row["tags"] == properties.get("TAGS")
        assert row["keys"] == properties.get("KEYS")
        assert row["msgId"] == properties.get("UNIQ_KEY", row["offsetMsgId"])
        assert row["crcOk"] is True


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_rows_are_as_expected(name: str, splits: int) -> None:
    assert_as_expected(read(golden_set(name).store, splits=splits), name)


def test_spark_gives_the_rows_of_all_sets_in_one_query(spark: SparkSession) -> None:
    """The reader alone has shown it for each set; what costs most is to start a query."""
    names = {str(golden_set(name).store): name for name in STORE_SET_NAMES}
    size = split_size(golden_set("rolled").store, 2)
    table = spark.read.format("flintmq").option("splitSize", size).load([*names])
    every = sorted(table.collect(), key=lambda row: row["physicalOffset"])
    for path, name in names.items():
        assert_as_expected([row.asDict() for row in every if row["path"] == path], name)


def test_files_are_split_inside() -> None:
    counts = [
        len(make_reader(golden_set("rolled").store, splits=splits).partitions())
        for splits in SPLITS
    ]
    # Some records are larger than a seventh of a file.
    assert counts == [8, 16, 51]


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("name", DAMAGED_SET_NAMES)
def test_skip_gives_all_that_is_whole(name: str, splits: int) -> None:
    rows = read(damaged_set(name).store, splits=splits, onCorruptRecord="skip")
    assert [as_expected(row) for row in rows] == whole_rows(name)


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("name", DAMAGED_SET_NAMES)
def test_row_gives_damage_a_row_of_its_own(name: str, splits: int) -> None:
    rows = read(damaged_set(name).store, splits=splits, onCorruptRecord="row")
    damaged = [row for row in rows if row["_corruptReason"] is not None]
    found = [(row["physicalOffset"], row["_corruptSize"], row["_corruptReason"]) for row in damaged]
    wanted = [known[name] for known in (DAMAGE, LEFT_BEHIND) if name in known]
    assert found == wanted
    for row in damaged:
        # A record whose checksum is wrong is told in full, other damage has no fields.
        is_record = row["_corruptReason"] == CHECKSUM
        assert (row["crcOk"], row["topic"] is not None) == (
            (False, True) if is_record else (None, False)
        )
    whole = [as_expected(row) for row in rows if row["_corruptReason"] is None]
    assert whole == whole_rows(name)


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("name", DAMAGED_SET_NAMES)
def test_fail_names_the_place(name: str, splits: int) -> None:
    reader = make_reader(damaged_set(name).store, splits=splits)
    if name not in DAMAGE:
        assert [as_expected(row) for row in rows_of(reader)] == whole_rows(name)
        return
    start, size, reason = DAMAGE[name]
    with pytest.raises(CorruptLogError) as caught:
        rows_of(reader)
    assert (caught.value.start, caught.value.end) == (start, start + size)
    assert caught.value.reason == reason


def test_fail_fails_the_query(spark: SparkSession) -> None:
    table = load(spark, damaged_set("record-length-wrong").store, splits=2)
    with pytest.raises(PySparkException, match="damaged from 242602 to 243155"):
        table.count()


def test_row_reaches_spark(spark: SparkSession) -> None:
    store = damaged_set("record-length-wrong").store
    table = load(spark, store, splits=7, onCorruptRecord="row")
    assert table.count() == 385
    (row,) = table.where("_corruptReason is not null").collect()
    assert (row["physicalOffset"], row["_corruptSize"]) == (242602, 553)


def test_a_lost_file_is_damage(tmp_path: Path) -> None:
    store = copy_store(golden_set("rolled"), tmp_path, abort=False)
    (store / "commitlog" / "00000000000000065536").unlink()
    rows = read(store, onCorruptRecord="row")
    (lost,) = [row for row in rows if row["_corruptReason"] is not None]
    assert (lost["physicalOffset"], lost["_corruptSize"]) == (65536, 32768)
    whole = [row for row in offsets_of("rolled") if not 65536 <= row < 98304]
    assert offsets(read(store, onCorruptRecord="skip")) == whole
    with pytest.raises(CorruptLogError, match="no file holds this range"):
        read(store)


def offsets_of(name: str) -> list[int]:
    return [row["physicalOffset"] for row in expected_rows(name)]
