"""The recorded streams of a Java pair: our slave takes them, our master sends the same bytes."""

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.replication.master_link import MasterLink
from flintmq.broker.replication.replica_log import StoreReplica
from flintmq.broker.replication.slave_link import SlaveLink
from flintmq.format.wire.ha_stream import encode_report, encode_transfer_header
from flintmq.store.config import BrokerRole, StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.testing import ManualClock
from tests.kits.golden.golden_sets import DATA

HEARTBEAT_MS: Final = 5000
TRANSFER_SIZE: Final = 32 << 10


def recorded(kind: str) -> list[dict[str, Any]]:
    lines = (DATA / "frames" / kind / "ha-stream.jsonl").read_text().splitlines()
    return [{**line, "raw": base64.b64decode(line["raw"])} for line in map(json.loads, lines)]


def open_slave(root: Path, clock: ManualClock) -> MessageStore:
    config = StoreConfig(
        root=root,
        commit_log_file_size=1 << 20,
        hash_slot_count=100,
        index_entry_count=400,
        broker_role=BrokerRole.SLAVE,
        broker_id=1,
    )
    return MessageStore.open(config, clock=clock, background=False)


@pytest.mark.parametrize("kind", ["json", "rocketmq"])
def test_our_slave_takes_the_recorded_stream_and_reports_as_recorded(
    kind: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    with open_slave(tmp_path / "store", clock) as store:
        link = MasterLink(
            StoreReplica(store),
            now_ms=lambda: int(clock.monotonic() * 1000),
            heartbeat_ms=HEARTBEAT_MS,
            silence_ms=20_000,
        )
        link.request(0)
        # A Java slave asks for the offset 0, and its master begins there.
        link.received_end = 0
        sent = bytearray()
        conversation = recorded(kind)[1:]
        for line in conversation:
            if line["dir"] == "master->slave":
                link.received(memoryview(line["raw"]))
                sent += line["raw"][12:]
            else:
                due = link.due_report()
                assert due is not None
                assert encode_report(due) == line["raw"]
        assert store.log.end_offset == len(sent)
        first = store.log.files.first
        assert first is not None
        assert bytes(first.view[: len(sent)]) == sent
        while store.dispatch():
            pass
        assert store.dispatcher.offset == len(sent)


@pytest.mark.parametrize("kind", ["json", "rocketmq"])
def test_our_master_answers_recorded_reports_with_the_recorded_bytes(
    kind: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    with open_slave(tmp_path / "store", clock) as store:
        slave = SlaveLink(
            "slave",
            now_ms=lambda: int(clock.monotonic() * 1000),
            heartbeat_ms=HEARTBEAT_MS,
            silence_ms=20_000,
        )
        began = recorded(kind)[0]["time"]
        for line in recorded(kind):
            clock.advance(max(line["time"] - began - int(clock.monotonic() * 1000), 0))
            if line["dir"] == "slave->master":
                slave.received(line["raw"], log_start=0, log_end=store.log.end_offset)
                continue
            if line["size"] == 0:
                assert slave.is_heartbeat_due
                slave.transferred(0)
                assert encode_transfer_header(slave.next_offset, 0) == line["raw"]
                continue
            # What the master had stored by then.
            store.replica.append(line["offset"], bytearray(line["raw"][12:]))
            part = store.log.read_range(slave.next_offset, TRANSFER_SIZE)
            assert part is not None
            with part:
                assert (
                    encode_transfer_header(part.start, part.size) + bytes(part.view) == line["raw"]
                )
                slave.transferred(part.size)
        assert slave.acknowledged == store.log.end_offset


@pytest.mark.parametrize("name", ["basic", "kinds", "ipv6", "rolled"])
def test_the_logs_of_java_go_through_the_stream(name: str, tmp_path: Path) -> None:
    """Batches, transactions, IPv6 hosts, blanks at the end of files: all that Java has written."""
    files = sorted((DATA / name / "store" / "commitlog").iterdir())
    expected = json.loads((DATA / name / "expected.json").read_text())
    messages = (DATA / name / "expected.jsonl").read_text().splitlines()
    clock, size = ManualClock(), files[0].stat().st_size
    config = StoreConfig(
        root=tmp_path / "store",
        commit_log_file_size=size,
        hash_slot_count=100,
        index_entry_count=400,
        broker_role=BrokerRole.SLAVE,
        broker_id=1,
    )
    with MessageStore.open(config, clock=clock, background=False) as store:
        link = MasterLink(
            StoreReplica(store), now_ms=lambda: 0, heartbeat_ms=HEARTBEAT_MS, silence_ms=20_000
        )
        at = link.request(int(files[0].name))
        for file in files:
            first, content = int(file.name), file.read_bytes()
            end = min(expected["scanEnd"], first + size)
            while at < end:
                piece = content[at - first : min(at - first + 700, end - first)]
                link.received(memoryview(encode_transfer_header(at, len(piece)) + piece))
                at += len(piece)
        assert store.log.end_offset == expected["scanEnd"]
        for file, copied in zip(files, store.log.files.snapshot(), strict=True):
            assert bytes(copied.view[: copied.wrote]) == file.read_bytes()[: copied.wrote]
        before, count = -1, 0
        while store.dispatcher.offset != before:
            before = store.dispatcher.offset
            count += store.dispatch()
        assert count == len(messages)
