"""Lives of a master and its slave whose dispatchers lag while topics are deleted, each by a seed.

A failing seed is in the note of the error.  ``FLINTMQ_LAGGING_SEEDS=5000:9000`` runs others.
"""

import os
from collections import Counter
from typing import Final

import pytest

from flintmq.store import dispatch, run_limit
from tests.kits.replication.lagging_pair import EVENT_COUNT, LaggingPair

SEEDS: Final = range(*map(int, os.environ.get("FLINTMQ_LAGGING_SEEDS", "0:240").split(":")))
FOUND_BY: Final = (2576, 7122, 12333)
"""Seeds that found a fault: an index file made anew under an old name, and a topic that was made
again while it was being deleted, once with a master that had not dispatched it."""
SHARD_COUNT: Final = 4


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let dispatchers lag in stores that are small."""
    monkeypatch.setattr(run_limit, "RUN_COUNT_MAX", 3)
    monkeypatch.setattr(run_limit, "RUN_KEY_COUNT_MAX", 5)
    monkeypatch.setattr(run_limit, "GROUP_KEY_COUNT_MAX", 4)
    monkeypatch.setattr(run_limit, "BATCH_REQUEST_COUNT_MAX", 3)
    monkeypatch.setattr(dispatch, "RUN_KEY_COUNT_MAX", 5)
    monkeypatch.setattr(dispatch, "BATCH_COUNT_MAX", 4)
    monkeypatch.setattr(dispatch, "REPLICA_STEP_SIZE", 700)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARD_COUNT))
def test_all_that_was_acknowledged_and_not_deleted_is_delivered_by_both(shard: int) -> None:
    happened: Counter[str] = Counter()
    for seed in [*SEEDS[shard::SHARD_COUNT], *FOUND_BY[shard::SHARD_COUNT]]:
        pair = LaggingPair(seed)
        try:
            pair.run(EVENT_COUNT)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        happened.update(
            acknowledged=len(pair.acknowledged),
            deletions=pair.deletions,
            cleanings=pair.cleanings,
            full_disks=pair.full_disks,
            promotions=pair.promotions,
        )
    # The lives are eventful: none of these is left out unnoticed.
    count = len(SEEDS) // SHARD_COUNT
    assert happened["acknowledged"] > count
    assert happened["promotions"] > count // 2
    assert min(happened.values()) > count // 4, happened
