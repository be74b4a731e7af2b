"""Kernels never look or write outside of what they were given, whatever frames come."""

import os
import subprocess
import sys
from types import ModuleType
from typing import Final

import numpy as np
import pytest

from flintmq.kernels.checked_access import checked_copy, checked_loader, checked_storer
from tests.kits.broker import pull_walk_fuzz, walk_fuzz

ROUNDS: Final = 400


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fuzz", [walk_fuzz, pull_walk_fuzz])
def test_compiled_kernels_do_what_they_do_with_bounds_checked(fuzz: ModuleType, seed: int) -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", fuzz.__name__, str(seed), str(ROUNDS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == fuzz.outcome(seed, ROUNDS)
    assert int(done.stdout.split()[0]) > ROUNDS // 2


def test_the_check_finds_what_is_outside() -> None:
    data = np.zeros(8, np.uint8)
    load, store = checked_loader(32, "big", is_signed=True), checked_storer(32)
    assert load(data, 4) == 0
    for at in (-1, 5, 100):
        with pytest.raises(IndexError):
            load(data, at)
        with pytest.raises(IndexError):
            store(data, at, 1)
    for to, start, size in ((0, 0, 9), (-1, 0, 1), (0, 7, 2), (7, 0, 2), (0, 0, -1)):
        with pytest.raises(IndexError):
            checked_copy(data, to, data, start, size)
