"""``dump --format jsonl`` prints what the Java classes say of each message, line by line."""

import json

import pytest

from flintmq.cli.main import run
from tests.kits.golden.golden_sets import (
    DAMAGED_SET_NAMES,
    STORE_SET_NAMES,
    damaged_set,
    golden_set,
)


def dumped(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[object]:
    assert run(["store", "dump", *arguments, "--format", "jsonl"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_every_line_is_as_expected(capsys: pytest.CaptureFixture[str], name: str) -> None:
    golden = golden_set(name)
    assert dumped(capsys, str(golden.store)) == golden.messages()


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_each_queue_holds_its_messages(capsys: pytest.CaptureFixture[str], name: str) -> None:
    golden = golden_set(name)
    messages = golden.messages()
    for topic, queue_id in {(one["topic"], one["queueId"]) for one in messages}:
        wanted = [one for one in messages if (one["topic"], one["queueId"]) == (topic, queue_id)]
        selection = ["--topic", topic, "--queue", str(queue_id)]
        assert dumped(capsys, str(golden.store), *selection) == wanted
        middle = [one for one in wanted if 1 <= one["queueOffset"] < 4]
        assert dumped(capsys, str(golden.store), *selection, "--from", "1", "--to", "4") == middle


@pytest.mark.parametrize("name", ["basic", "rolled", "killed", "killed-recovered"])
def test_each_key_finds_its_messages(capsys: pytest.CaptureFixture[str], name: str) -> None:
    golden = golden_set(name)
    messages = golden.messages()
    keys = {
        key for one in messages for key in (one["properties"].get("KEYS", "").split(" ")) if key
    }
    for key in sorted(keys)[::7]:
        wanted = [one for one in messages if key in one["properties"].get("KEYS", "").split(" ")]
        assert dumped(capsys, str(golden.store), "--key", key) == wanted


LOST = {
    "consumequeue-ahead": 6,
    "record-length-wrong": 1,
    "tail-record-half-zero": 1,
    "tail-record-zero-from-30": 1,
    "last-commitlog-file-lost": 31,
}
"""How many of the messages are not in the log any more."""


@pytest.mark.parametrize("name", DAMAGED_SET_NAMES)
def test_a_damaged_store_gives_all_that_is_left(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code = 1 if name.startswith("body-") or name == "record-length-wrong" else 0
    found = dumped(capsys, str(damaged_set(name).store), code=code)
    whole = {one["physicalOffset"]: one for one in golden_set("rolled").messages()}
    assert len(found) == len(whole) - LOST.get(name, 0)
    for one in found:
        assert isinstance(one, dict)
        expected = whole[one["physicalOffset"]]
        differing = {field for field in expected if one[field] != expected[field]}
        # Units may be lost, and the body of one message is not what it was.
        assert differing <= {"tagsCode"} | ({"bodySha256"} if "crcOk" in one else set())
