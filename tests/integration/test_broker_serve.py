"""``flintmq serve``, ``broker`` and ``namesrv`` from their first line to their exit code."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

import pytest

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_UNREADABLE, EXIT_USAGE
from flintmq.format.wire.bodies.heartbeat import ConsumerData, Heartbeat, encode_heartbeat
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import DeleteGroupRequest
from flintmq.remoting import ConnectError, RemotingClient
from tests.kits.broker.remoting_kit import eventually
from tests.kits.processes.broker_process import wait_for_same_logs
from tests.kits.processes.serve_client import (
    QUEUE_COUNT,
    Load,
    brokers_of,
    read_queue,
    run,
    send,
)
from tests.kits.processes.serve_process import ServeProcess, serving
from tests.kits.processes.serve_process import run as run_command

RESERVED_MAX: Final = 600_000_000
ACKNOWLEDGED_MIN: Final = 1500


def reserved_size(directory: Path) -> int:
    """Return the bytes of disk that the files of a directory take, holes not counted."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def broker_properties(root: Path) -> list[str]:
    return [
        "--set=listenPort=0",
        f"--set=storePathRootDir={root}",
        "--set=mappedFileSizeCommitLog=4194304",
        "--set=maxHashSlotNum=1000",
        "--set=maxIndexNum=4000",
    ]


async def test_a_group_is_ready_at_its_default_size_and_ends_with_code_0(tmp_path: Path) -> None:
    with serving(tmp_path / "data", small=False) as group:
        assert group.ready_line.endswith(f"data={tmp_path / 'data'}")
        assert not group.namesrv.endswith(":0")
        size = reserved_size(tmp_path / "data")

        async with RemotingClient() as client:
            stored = await send(client, group.brokers[0], b"first")
            assert stored.queue_offset == 0
            await eventually_routed(client, group.namesrv, {group.brokers[0]})
        ended = group.stop()
    assert ended.code == EXIT_FINE
    assert not ended.complaints
    assert 0 < size <= RESERVED_MAX
    settings = (tmp_path / "data" / "broker.conf").read_text()
    assert "mappedFileSizeCommitLog=" in settings


async def eventually_routed(client: RemotingClient, namesrv: str, brokers: set[str]) -> None:
    while await brokers_of(client, namesrv, "IntegrationTopic") != brokers:  # noqa: ASYNC110 - polled
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_acknowledged_under_load_is_there_after_a_stop(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path / "data") as group:
        load = Load(group.brokers[0], worker_count=16)

        async def fill_and_stop() -> None:
            working = asyncio.create_task(load.run())
            await eventually(lambda: len(load.acknowledged) >= ACKNOWLEDGED_MIN)
            os.kill(group.pid, number)
            await working

        run(fill_and_stop())
        ended = group.serve.ended()
    assert ended.code == EXIT_FINE, ended.err
    assert not (tmp_path / "data" / "store" / "abort").exists()

    with serving(tmp_path / "data") as again:

        async def read() -> dict[tuple[int, int], bytes]:
            async with RemotingClient() as client:
                return {
                    (queue_id, offset): body
                    for queue_id in range(QUEUE_COUNT)
                    for offset, body in (
                        await read_queue(client, again.brokers[0], queue_id)
                    ).items()
                }

        served = run(read())
    assert len(load.acknowledged) >= ACKNOWLEDGED_MIN
    assert load.acknowledged.items() <= served.items()


async def test_two_brokers_both_serve(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--brokers", "2") as group:
        assert len(set(group.brokers)) == 2

        async with RemotingClient() as client:
            for address in group.brokers:
                for number in range(10):
                    await send(client, address, b"%s %d" % (address.encode(), number))
            await eventually_routed(client, group.namesrv, set(group.brokers))
            for address in group.brokers:
                bodies = await read_queue(client, address, 0)
                expected = [b"%s %d" % (address.encode(), number) for number in range(10)]
                assert list(bodies.values()) == expected
        parts = children(group.pid)
        assert len(parts) == 2
        ended = group.stop()
    assert ended.code == EXIT_FINE
    assert not ended.complaints
    for directory in (tmp_path / "data", tmp_path / "data" / "broker-b"):
        assert (directory / "broker.conf").exists()
        assert not (directory / "store" / "abort").exists()


async def test_a_whole_cluster_with_slaves_and_name_servers(tmp_path: Path) -> None:
    options = ("--brokers", "2", "--replicas", "1", "--namesrvs", "2")
    with serving(tmp_path / "data", *options, "--set=haSendHeartbeatInterval=100") as group:
        assert len(set(group.brokers)) == 2
        namesrvs = group.namesrv.split(";")
        assert len(set(namesrvs)) == 2
        assert len(children(group.pid)) == 4

        async with RemotingClient() as client:
            for address in group.brokers:
                await send(client, address, address.encode())
            for namesrv in namesrvs:
                await eventually_routed(client, namesrv, {*group.brokers, *group.slaves})
        for name in ("broker-a", "broker-b"):
            directory = tmp_path / "data" if name == "broker-a" else tmp_path / "data" / name
            slave = tmp_path / "data" / f"{name}-slave-1"
            wait_for_same_logs(directory / "store", slave / "store")
        ended = group.stop()
    assert ended.code == EXIT_FINE
    assert not ended.complaints


async def test_a_broker_that_dies_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--brokers", "2") as group:
        first, second = children(group.pid)

        async with RemotingClient() as client:
            for address in group.brokers:
                await send(client, address, b"before")
            os.kill(second, signal.SIGKILL)
            await eventually(lambda: set(children(group.pid)) - {first, second} != set())
            assert first in children(group.pid)
            await send(client, group.brokers[0], b"meanwhile")
            # It has the same port, and what was acknowledged.
            await eventually_up(client, group.brokers[1])
            bodies = await read_queue(client, group.brokers[1], 0)
            assert list(bodies.values())[:1] == [b"before"]
            await eventually(lambda: group.serve.has_logged("broker up again: name=broker-b"))
        ended = group.stop()
    assert ended.code == EXIT_FINE
    assert not ended.complaints
    assert "Traceback" not in ended.err
    assert "broker ended by itself: name=broker-b exit_code=-9 restart=1 of" in ended.err
    for directory in (tmp_path / "data", tmp_path / "data" / "broker-b"):
        assert not (directory / "store" / "abort").exists()


async def eventually_up(client: RemotingClient, address: str) -> None:
    while True:
        try:
            await client.connect(address)
        except ConnectError:
            await asyncio.sleep(0.05)
        else:
            return


async def test_brokers_with_one_directory_for_logs_have_each_their_own(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with serving(tmp_path / "data", "--brokers", "2", f"--set=storePathCommitLog={logs}") as group:
        async with RemotingClient() as client:
            for address in group.brokers:
                await send(client, address, address.encode())
            for address in group.brokers:
                bodies = await read_queue(client, address, 0)
                assert list(bodies.values()) == [address.encode()]
        assert group.stop().code == EXIT_FINE
    for directory, address in zip((logs, tmp_path / "logs-broker-b"), group.brokers, strict=True):
        (log,) = (path for path in directory.iterdir() if path.name == "0" * 20)
        assert address.encode() in log.read_bytes()


async def test_a_name_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    forged = "g\n2026-01-01T00:00:00.000 ERROR flintmq.store: all is lost\x1b[2J"
    process = ServeProcess("broker", *broker_properties(tmp_path / "store"))
    try:
        address = process.wait_for("The broker[").split(", ")[1].split("]")[0]

        beat = Heartbeat(client_id="c", consumers=(ConsumerData(group=forged),))
        async with RemotingClient() as client:
            code, body = RequestCode.HEART_BEAT, encode_heartbeat(beat)
            await client.call(address, code, None, body, timeout_ms=10_000)
            header = DeleteGroupRequest(group_name=forged)
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            answer = await client.call(address, code, header, timeout_ms=10_000)
            assert answer.code == ResponseCode.SUCCESS
        ended = process.stop()
    finally:
        process.close()
    assert ended.code == EXIT_FINE
    lines = ended.err.splitlines()
    assert any("group deleted: group=g\\n2026" in line for line in lines)
    assert not any("ERROR" in line.split()[1] for line in lines if not line.startswith(" "))
    assert "\x1b" not in ended.err


def test_brokers_end_with_a_group_that_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--brokers", "2") as group:
        parts = children(group.pid)
        os.kill(group.pid, signal.SIGKILL)
        group.serve.process.wait()
        run(eventually_gone(parts))
    assert not (tmp_path / "data" / "store" / "abort").exists()


async def eventually_gone(parts: list[int]) -> None:
    await eventually(lambda: not any(is_running(part) for part in parts))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_second_broker_on_one_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as group:
        ended = run_command(
            *("serve", "--data", str(tmp_path / "data")),
            *("--namesrv-port", "0", "--broker-port", "0"),
        )
        assert ended.code == EXIT_UNREADABLE
        assert ended.out == ""
        (line,) = ended.complaints
        assert "lock" in line
        assert "Traceback" not in ended.err
        assert group.stop().code == EXIT_FINE


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as group:
        port = group.brokers[0].rpartition(":")[2]
        ended = run_command(
            "broker", f"--set=storePathRootDir={tmp_path}", f"--set=listenPort={port}"
        )
        (line,) = ended.complaints
        assert ended.code == EXIT_UNREADABLE
        assert f":{port}" in line


def test_an_unknown_key_is_refused_or_in_a_file_warned_of_with_the_nearest(tmp_path: Path) -> None:
    wrong = ("--set=flushDiskTpe=SYNC_FLUSH", "--set=zzz=1", f"--data={tmp_path / 'data'}")
    for command in ("serve", "broker", "namesrv"):
        done = run_command(command, *wrong[: 3 if command == "serve" else 2])
        assert done.code == EXIT_USAGE
        if command != "namesrv":
            assert "unknown setting flushDiskTpe; did you mean flushDiskType?" in done.err
        assert "unknown setting zzz" in done.err
    assert not (tmp_path / "data").exists()
    file = tmp_path / "broker.conf"
    file.write_text(f"flushDiskTpe=SYNC_FLUSH\nstorePathRootDir={tmp_path / 'store'}\n")
    done = run_command("broker", "-p", "-c", str(file))
    assert done.code == EXIT_FINE
    assert "flintmq: unknown setting flushDiskTpe; did you mean flushDiskType?" in done.err


def test_a_broker_takes_name_servers_from_its_environment_and_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    root = f"--set=storePathRootDir={tmp_path / 'store'}"
    lines = run_command("broker", "-p", root, "--host", "127.0.0.4").out.splitlines()
    for line in ("namesrvAddr=10.0.0.1:9876", "bindAddress=127.0.0.4", "brokerIP1=127.0.0.4"):
        assert line in lines
    lines = run_command("broker", "-p", root, "-n", "10.0.0.2:9876").out.splitlines()
    assert "namesrvAddr=10.0.0.2:9876" in lines
    lines = run_command("namesrv", "-p", "--host", "127.0.0.4").out.splitlines()
    assert "bindAddress=127.0.0.4" in lines


def test_serve_keeps_the_sizes_of_a_store_and_changes_and_tells_who_is_left_out(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"

    async def ask(address: str, code: int, body: bytes = b"") -> str:
        async with RemotingClient() as client:
            answer = await client.call(address, code, None, body, timeout_ms=5000)
            assert answer.code == ResponseCode.SUCCESS, answer
            return bytes(answer.body).decode()

    async def send_one(address: str) -> None:
        async with RemotingClient() as client:
            await send(client, address, b"first")

    with serving(data) as group:
        run(send_one(group.brokers[0]))
        size = (data / "store" / "commitlog" / ("0" * 20)).stat().st_size
        change = b"regionId=elsewhere"
        run(ask(group.brokers[0], RequestCode.UPDATE_BROKER_CONFIG, change))
        assert group.stop().code == EXIT_FINE
    (data / "broker-b").mkdir()
    (data / "broker-b" / "broker.conf").touch()
    # Unless told otherwise, serve makes larger files.
    with serving(data, small=False) as group:
        shown = run(ask(group.brokers[0], RequestCode.GET_BROKER_CONFIG)).splitlines()
        assert "regionId=elsewhere" in shown
        assert f"mappedFileSizeCommitLog={size}" in shown
        ended = group.stop()
    assert ended.code == EXIT_FINE
    assert "flintmq: not started, though there from before: broker-b" in ended.complaints


def test_a_change_made_while_a_broker_runs_counts_after_its_restart(tmp_path: Path) -> None:
    config = tmp_path / "b.conf"
    config.write_text(f"listenPort=0\nstorePathRootDir={tmp_path / 'store'}\n")
    change = b"regionId=elsewhere\nmaxMessageSize=5000\ndeleteWhen=05"

    async def change_and_show(address: str, body: bytes) -> list[str]:
        async with RemotingClient() as client:
            code = RequestCode.UPDATE_BROKER_CONFIG
            answer = await client.call(address, code, None, body, timeout_ms=5000)
            assert answer.code == ResponseCode.SUCCESS, answer
            code = RequestCode.GET_BROKER_CONFIG
            answer = await client.call(address, code, timeout_ms=5000)
            return bytes(answer.body).decode().splitlines()

    for body in (change, b""):
        process = ServeProcess("broker", "-c", str(config), *broker_properties(tmp_path / "store"))
        try:
            address = process.wait_for("The broker[").split(", ")[1].split("]")[0]
            shown = run(change_and_show(address, body))
            ended = process.stop()
        finally:
            process.close()
        assert ended.code == EXIT_FINE
        for line in change.decode().splitlines():
            assert line in shown
    # The start tells which file has them, and that of the operator is as it was.
    assert "b.conf.changes" in ended.err
    assert "regionId" not in config.read_text()


@pytest.mark.parametrize("command", ["serve", "broker"])
def test_the_notation_of_headers_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("ROCKETMQ_SERIALIZE_TYPE", "XML")
    more = [f"--data={tmp_path / 'data'}", "--namesrv-port=0"] if command == "serve" else []
    ended = run_command(command, *more)
    assert ended.code == EXIT_UNREADABLE
    assert "rocketmq.serialize.type=XML" in ended.err


@pytest.mark.parametrize("command", ["serve", "broker", "namesrv"])
def test_a_bad_value_stops_the_start_with_one_line(tmp_path: Path, command: str) -> None:
    more = [f"--data={tmp_path / 'data'}", "--namesrv-port=0"] if command == "serve" else []
    ended = run_command(command, *more, "--set=listenPort=many")
    assert ended.code == EXIT_UNREADABLE
    assert ended.complaints == [
        "flintmq: listenPort=many: allowed is a whole number from 0 to 65535"
    ]
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_broker_boots_with_the_line_that_scripts_wait_for(tmp_path: Path) -> None:
    config = tmp_path / "b.conf"
    config.write_text(f"brokerName=n1\nlistenPort=0\nstorePathRootDir={tmp_path / 'store'}\n")
    process = ServeProcess("broker", "-c", str(config), *broker_properties(tmp_path / "store"))
    try:
        line = process.wait_for("The broker[n1, ")
        assert line.endswith("] boot success. serializeType=JSON")
        assert process.stop().code == EXIT_FINE
    finally:
        process.close()


def test_a_broker_tells_its_name_servers_in_the_boot_line(tmp_path: Path) -> None:
    namesrv = ServeProcess(
        "namesrv", "--set=listenPort=0", f"--set=kvConfigPath={tmp_path / 'kv.json'}"
    )
    try:
        boot = namesrv.wait_for("The Name Server boot success. serializeType=JSON")
        address = "127.0.0.1:" + boot.rpartition(":")[2]
        broker = ServeProcess("broker", "-n", address, *broker_properties(tmp_path / "store"))
        try:
            line = broker.wait_for("The broker[")
            assert line.endswith(f"serializeType=JSON and name server is {address}")
            assert broker.stop().code == EXIT_FINE
        finally:
            broker.close()
        assert namesrv.stop().code == EXIT_FINE
    finally:
        namesrv.close()


def test_settings_are_printed(tmp_path: Path) -> None:
    chosen = f"--set=storePathRootDir={tmp_path / 'store'}"
    everything = run_command("broker", "-p", chosen)
    important = run_command("broker", "-m", chosen)
    assert everything.code == important.code == EXIT_FINE
    all_lines = everything.out.splitlines()
    lines = important.out.splitlines()
    assert f"storePathRootDir={tmp_path / 'store'}" in lines
    assert set(lines) < set(all_lines)
    assert any(line.startswith("maxMessageSize=") for line in all_lines)
    assert not (tmp_path / "store").exists()
    assert "listenPort=9876" in run_command("namesrv", "-p").out.splitlines()
