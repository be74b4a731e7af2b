"""The tour of a new operator, as the documents have it, works."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.kits.broker.remoting_kit import reserved_broker_port, reserved_port

TOUR: Final = Path(__file__).parents[2] / "docs" / "operating" / "tour.sh"


@pytest.mark.slow
def test_the_tour_of_an_operator(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("flintmq", "-m flintmq"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (commands / name).chmod(0o755)
    with reserved_port() as namesrv, reserved_broker_port() as broker:
        done = subprocess.run(
            ["sh", str(TOUR)],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("FLINTMQ_")},
                "NAMESRV_PORT": str(namesrv),
                "BROKER_PORT": str(broker),
                "DATA": str(tmp_path / "data"),
                "PATH": f"{commands}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    said = done.stdout
    assert "nothing -> order False, perm 6, readQueueNums 2" in said
    assert '{"order": 2}' in said
    assert "offset of billing in orders" in said
    assert "%DLQ%billing" in said
    assert "sent: 1" in said
    assert "writable False" in said
    assert said.rstrip().endswith("problem: 0")
