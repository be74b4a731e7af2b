"""A synchronous pair of processes under large batches with many keys, and faults in between.

``FLINTMQ_LAGGING_RUNS=10:30`` runs other seeds.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.kits.replication.batch_chaos import run_batches

SEEDS: Final = range(*map(int, os.environ.get("FLINTMQ_LAGGING_RUNS", "144:145").split(":")))
FAULT_COUNT: Final = 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_both_have_acknowledged_is_delivered_by_both(tmp_path: Path, seed: int) -> None:
    assert len(run_batches(tmp_path, seed, FAULT_COUNT)) == FAULT_COUNT + 1
