"""The small state of the Java broker: JSON files and the checkpoint page."""

import json

import pytest

from flintmq.format import fastjson
from flintmq.format.stored.checkpoint import (
    Checkpoint,
    CheckpointMarks,
    decode_checkpoint,
    encode_checkpoint,
)
from tests.kits.golden.golden_sets import STORE_SET_NAMES, golden_set


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_state_files_are_read_as_java_reads_them(name: str) -> None:
    stored = golden_set(name)
    files = {path.name: path.read_bytes() for path in stored.state_files()}
    expected = stored.expected()["configFiles"]
    assert expected
    for file_name, value in expected.items():
        # The expectation is strict JSON, which knows no integer keys.
        loaded = json.loads(json.dumps(fastjson.loads(files[file_name])))
        assert loaded == value


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_state_files_are_written_byte_for_byte_but_for_the_order_of_maps(name: str) -> None:
    for path in golden_set(name).state_files():
        content = path.read_bytes()
        value = fastjson.loads(content)
        assert fastjson.dumps(value, sort_members=False).encode() == content
        lines = fastjson.dumps(value).splitlines()
        assert sorted(line.rstrip(",") for line in lines) == sorted(
            line.rstrip(",") for line in content.decode().splitlines()
        )


def test_integer_keys_are_integers() -> None:
    path = golden_set("kinds").store / "config" / "delayOffset.json"
    assert fastjson.loads(path.read_bytes()) == {"offsetTable": {1: 8, 2: 1, 3: 1}}


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_checkpoints_are_read_and_written_as_java_has_them(name: str) -> None:
    stored = golden_set(name)
    page = (stored.store / "checkpoint").read_bytes()
    checkpoint = decode_checkpoint(page)
    assert stored.expected()["checkpoint"] == {
        "physicMsgTimestamp": checkpoint.physic,
        "logicsMsgTimestamp": checkpoint.logics,
        "indexMsgTimestamp": checkpoint.index,
    }
    assert checkpoint.marks is None
    assert encode_checkpoint(checkpoint) == page


def test_a_java_broker_that_moves_the_times_makes_the_marks_void() -> None:
    marks = CheckpointMarks(10, 9, 20261115191325403, 8, 7, 6, 5)
    page = bytearray(encode_checkpoint(Checkpoint(1, 2, 3, marks)))
    assert decode_checkpoint(page).marks == marks
    java_page = (golden_set("rolled").store / "checkpoint").read_bytes()
    page[:24] = java_page[:24]
    assert decode_checkpoint(page) == decode_checkpoint(java_page)
