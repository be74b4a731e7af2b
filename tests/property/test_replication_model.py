"""Two thousand lives of a master and its slave, each decided by a seed.

A failing seed is in the note of the error; ``Simulation(seed).run(EVENT_COUNT)`` repeats it, and
``make soak SEEDS=100000`` tries more.
"""

from typing import Final

import pytest

from tests.kits.replication.simulation import EVENT_COUNT, Simulation

SEED_COUNT: Final = 2000
SHARD_COUNT: Final = 8


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARD_COUNT))
def test_nothing_acknowledged_is_lost_with_either_machine(shard: int) -> None:
    acknowledged = refused = anew = 0
    for seed in range(shard, SEED_COUNT, SHARD_COUNT):
        simulation = Simulation(seed)
        try:
            simulation.run(EVENT_COUNT)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        acknowledged += len(simulation.acknowledged)
        refused += len(simulation.refusals)
        anew += simulation.restarts_anew
    # The lives are eventful: none of these is left out unnoticed.
    assert acknowledged >= SEED_COUNT // SHARD_COUNT
    assert refused > 0
    assert anew > 0
