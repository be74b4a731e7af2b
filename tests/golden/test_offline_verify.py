"""``verify`` finds Java's healthy stores sound, and names each damage."""

import json
from typing import Any

import pytest

from flintmq.cli.main import run
from tests.kits.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    GoldenSet,
    damaged_set,
    golden_set,
)


def verified(capsys: pytest.CaptureFixture[str], golden: GoldenSet) -> tuple[int, dict[str, Any]]:
    code = run(["store", "verify", str(golden.store), "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    assert isinstance(report, dict)
    return code, report


def counts(report: dict[str, Any], severity: str) -> dict[str, int]:
    return {
        one["kind"]: one["count"]
        for one in report["findings"]["counts"]
        if one["severity"] == severity
    }


NOTES: dict[str, dict[str, int]] = {
    # Killed by kill -9: the dispatch was behind, and a file was made ahead.
    "killed": {"unused-file": 1, "queue-behind": 46, "index-behind": 130},
    "killed-early": {"unused-file": 1, "queue-behind": 23, "index-behind": 69},
    # The Java broker's recovery enters the message at the file boundary again.
    "killed-recovered": {"index-duplicate": 1},
    "killed-early-recovered": {"index-duplicate": 1},
}


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_stores_of_the_java_broker_are_sound(capsys: pytest.CaptureFixture[str], name: str) -> None:
    golden = golden_set(name)
    expected = golden.expected()
    code, report = verified(capsys, golden)
    assert code == 0
    assert counts(report, "problem") == {}
    assert counts(report, "note") == NOTES.get(name, {})
    assert report["logEnd"] == expected["scanEnd"]
    assert report["recordCount"] == len(golden.messages())
    units = sum(
        queue["unitsOnDisk"]
        for topic in expected["consumeQueueFiles"].values()
        for queue in topic.values()
    )
    assert report["unitCount"] == units
    entries = sum(file["indexCount"] - 1 for file in expected["indexFiles"])
    assert report["indexEntryCount"] == entries


DAMAGES: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "body-byte-flipped-first-file": ({"checksum": 1}, {}),
    "body-byte-flipped-last-file": ({"checksum": 1}, {}),
    "body-byte-flipped-previous-file": ({"checksum": 1}, {}),
    "commitlog-file-wrong-size": ({"wrong-size": 1}, {"unused-file": 1}),
    "consumequeue-ahead": ({"unit-ahead": 6, "index-ahead": 18}, {}),
    "consumequeue-behind": ({"queue-behind": 15}, {}),
    "consumequeue-file-wrong-size": ({"wrong-size": 1}, {}),
    "garbage-after-end": ({"garbage-after-end": 1}, {}),
    "garbage-after-gap": ({"garbage-after-end": 1}, {}),
    "last-commitlog-file-lost": ({"unit-ahead": 31, "index-ahead": 90}, {"ends-in-blank": 1}),
    "no-checkpoint": ({}, {"checkpoint": 1}),
    "no-consumequeue": ({"queue-missing": 385}, {}),
    "no-index": ({"key-missing": 883}, {}),
    "only-commitlog": ({"queue-missing": 385, "key-missing": 883}, {"checkpoint": 1}),
    "preallocated-file": ({}, {"unused-file": 1}),
    "record-length-wrong": (
        {"damaged-record": 1, "unit-to-damage": 1, "index-to-damage": 3},
        {},
    ),
    "tail-record-half-zero": ({"torn-tail": 1, "unit-to-damage": 1, "index-to-damage": 3}, {}),
    "tail-record-zero-from-30": (
        {"torn-tail": 1, "unit-to-damage": 1, "index-to-damage": 3},
        {},
    ),
}
"""Problems and notes of each set.  Nothing is lost where a checkpoint is missing or a file was
made ahead, so those stores are sound."""

PLACES = {
    "body-byte-flipped-first-file": (15178, 15768),
    "body-byte-flipped-last-file": (242602, 243155),
    "body-byte-flipped-previous-file": (206232, 209363),
    "record-length-wrong": (242602, 243155),
}


@pytest.mark.parametrize("name", DAMAGED_SET_NAMES)
def test_each_damage_is_named(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, report = verified(capsys, damaged_set(name))
    expected_problems, expected_notes = DAMAGES[name]
    assert counts(report, "problem") == expected_problems
    assert counts(report, "note") == expected_notes
    assert code == bool(expected_problems)
    ranges = [(one["start"], one["end"]) for one in report["damages"]]
    assert ranges == ([PLACES[name]] if name in PLACES else [])


@pytest.mark.parametrize("name", ["tail-record-half-zero", "garbage-after-end"])
def test_the_place_of_a_bad_tail_is_named(capsys: pytest.CaptureFixture[str], name: str) -> None:
    _, report = verified(capsys, damaged_set(name))
    kinds = {"tail-record-half-zero": "torn-tail", "garbage-after-end": "garbage-after-end"}
    (place,) = [one["offset"] for one in report["findings"]["kept"] if one["kind"] == kinds[name]]
    assert place == {"tail-record-half-zero": 249479, "garbage-after-end": 249817}[name]
