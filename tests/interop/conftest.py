import pytest

from tests.kits.processes.java_toolchain import JavaToolchain


@pytest.fixture(scope="session")
def toolchain() -> JavaToolchain:
    """Java and our programs, or a skipped test."""
    return JavaToolchain.find()
