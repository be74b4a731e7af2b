"""The table of settings against the real thing: names and defaults of the Java store."""

import subprocess
from pathlib import Path

import pytest

from flintmq.settings import read_properties
from flintmq.store.config import StoreConfig
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = pytest.mark.interop


def test_keys_and_defaults_are_those_of_java(toolchain: JavaToolchain) -> None:
    command = toolchain.command("PrintStoreConfig")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    java = read_properties(done.stdout)
    root = Path(java["storePathRootDir"])
    assert StoreConfig(root=root).to_properties() == java
    assert StoreConfig.from_properties(java) == StoreConfig(root=root)
