"""One cluster for all tests of a module; each uses topics and groups of its own."""

from collections.abc import Iterator

import pytest

from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli


@pytest.fixture(autouse=True)
def _no_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("contexts") / "contexts.yml"
    monkeypatch.setenv("FLINTMQ_CONTEXT_FILE", str(path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("FLINTMQ_CONTEXT", raising=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def cli(cluster: EmbeddedCluster) -> AdminCli:
    return AdminCli(cluster.namesrv)
