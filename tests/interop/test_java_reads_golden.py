"""The harness itself: stores written by Java are read by Java as expected."""

import json
from pathlib import Path
from typing import Any

import pytest

from flintmq.store.config import StoreConfig
from tests.kits.golden.key_queries import keyed_queries
from tests.kits.processes.java_cluster import (
    JavaCluster,
    assert_java_reads,
    assert_same_messages,
    copy_store,
)
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def expectations(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    directory = GOLDEN / name
    whole = json.loads((directory / "expected.json").read_text())
    lines = (directory / "expected.jsonl").read_text().splitlines()
    return whole, [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["basic", "rolled", "kinds", "extended", "ipv6"])
def test_java_reads_what_java_wrote(name: str) -> None:
    whole, messages = expectations(name)
    queries = keyed_queries(whole, messages)
    assert queries
    assert_java_reads(
        GOLDEN / name / "store",
        whole["config"],
        messages,
        queries=queries,
        log_end=whole["maxPhyOffset"],
    )


def test_java_recovers_the_store_of_a_killed_broker() -> None:
    whole, messages = expectations("killed")
    config = StoreConfig.from_properties({key: str(text) for key, text in whole["config"].items()})
    view = assert_java_reads(GOLDEN / "killed" / "store", config, messages)
    acknowledged = set(whole["acknowledgedOffsets"])
    assert acknowledged <= {message["physicalOffset"] for message in view.messages}


def test_the_judgement_notices_every_kind_of_difference() -> None:
    _, messages = expectations("rolled")
    assert_same_messages(messages, messages)
    changed = [*messages[:-1], messages[-1] | {"bodySha256": "0" * 64}]
    for wrong in (messages[:-1], [*messages, messages[0]], changed):
        with pytest.raises(AssertionError):
            assert_same_messages(wrong, messages)
    with pytest.raises(AssertionError):
        assert_same_messages(messages, messages[1:])


def test_a_clean_stop_leaves_no_abort_file(tmp_path: Path, toolchain: JavaToolchain) -> None:
    whole, _ = expectations("basic")
    store = tmp_path / "store"
    copy_store(GOLDEN / "basic" / "store", store)
    with JavaCluster(store, whole["config"], work_directory=tmp_path, toolchain=toolchain):
        assert (store / "abort").exists()
    assert not (store / "abort").exists()
