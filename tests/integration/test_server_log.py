"""The log of a real server: its format, and levels that are changed while it runs."""

import json
from pathlib import Path

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.remoting import RemotingClient
from tests.kits.processes.serve_client import run
from tests.kits.processes.serve_process import serving


def test_each_line_of_a_log_in_json_is_an_object(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--log-format", "json") as group:
        lines = group.stop().err.splitlines()
    records = [json.loads(line) for line in lines]
    ready = next(one for one in records if one["event"] == "broker ready")
    assert ready["area"] == "broker"
    assert ready["fields"]["store"] == str(tmp_path / "data" / "store")


def test_the_level_of_an_area_is_changed_while_a_broker_runs(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--log-level", "error") as group:
        broker = group.brokers[0]

        async def main() -> None:
            async with RemotingClient() as client:
                for value, code in (
                    ("settings=info", ResponseCode.SUCCESS),
                    ("settings=loud", ResponseCode.NO_PERMISSION),
                    ("settings=info,store=debug", ResponseCode.SUCCESS),
                ):
                    answer = await client.call(
                        broker,
                        RequestCode.UPDATE_BROKER_CONFIG,
                        None,
                        f"logLevels={value}".encode(),
                        timeout_ms=10_000,
                    )
                    assert answer.code == code, answer

        run(main())
        ended = group.stop()
    said = [line for line in ended.err.splitlines() if "settings changed: keys=logLevels" in line]
    assert len(said) == 1, "of the second change; the first had no level yet"
    kept = (tmp_path / "data" / "broker.conf.changes").read_text()
    assert "logLevels" in kept
