"""No request of a name server is handled before it was admitted."""

from pathlib import Path
from typing import Any

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.frame import HeaderType
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.namesrv.routes import RouteTable
from tests.kits.broker.broker_kit import eventually
from tests.kits.broker.gate_kit import ADMITTED, PROCESSED, WatchedGate, all_requests, request_of


def settings(root: Path) -> NamesrvConfig:
    return NamesrvConfig(
        listen_port=0, kv_config_path=root / "kv.json", config_store_path=root / "changes"
    )


def state_of(routes: RouteTable, root: Path) -> dict[str, Any]:
    """Return all that a request could have changed."""
    files = {path.name: path.read_bytes() for path in root.iterdir()}
    return files | {"routes": repr(vars(routes))}


@pytest.mark.parametrize("header_type", HeaderType)
async def test_every_request_is_admitted_once_and_first(
    header_type: HeaderType, tmp_path: Path
) -> None:
    async with run_namesrv(settings(tmp_path)) as namesrv:
        gate = WatchedGate(namesrv.server)
        requests = all_requests(gate.codes)
        assert len(requests) == 4 * len(gate.codes) == 80
        for one in requests:
            (way,) = gate.ask(one, header_type=header_type)
            assert way[0] == ADMITTED
            assert way[1:] == [PROCESSED] if one["ext_fields"] else way[1:] in ([], [PROCESSED])


@pytest.mark.parametrize("header_type", HeaderType)
async def test_a_refused_request_leaves_nothing(header_type: HeaderType, tmp_path: Path) -> None:
    async with run_namesrv(settings(tmp_path)) as namesrv:
        gate = WatchedGate(namesrv.server)
        before = state_of(namesrv.routes, tmp_path)
        register = request_of(RequestCode.REGISTER_BROKER, body=b"")
        requests = [*all_requests(gate.codes), register]
        gate.refuses = True
        ways = gate.ask(*requests, header_type=header_type)
        assert ways == [[ADMITTED]] * len(requests)
        assert {one.code for one in gate.answers()} == {ResponseCode.NO_PERMISSION}
        assert state_of(namesrv.routes, tmp_path) == before
        gate.refuses = False
        gate.ask(*requests, header_type=header_type)
        await eventually(lambda: "kv.json" in state_of(namesrv.routes, tmp_path))
        after = state_of(namesrv.routes, tmp_path)
        assert after["routes"] != before["routes"]
        assert "kv.json" in after.keys() - before.keys()
