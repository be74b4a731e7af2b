"""The Java broker opens a store whose views were rebuilt in place, and serves every message."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from tests.kits.golden.engine import copy_store
from tests.kits.golden.golden_sets import golden_set
from tests.kits.golden.key_queries import keyed_queries
from tests.kits.processes.java_cluster import assert_java_reads
from tests.kits.spark.inline_spark import inline_spark

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ["rolled", "extended"])
def test_java_reads_what_was_rebuilt(tmp_path: Path, name: str) -> None:
    golden = golden_set(name)
    whole, messages = golden.expected(), golden.messages()
    root = copy_store(golden, tmp_path, abort=False)
    rebuild(inline_spark(), root, in_place=True, split_size=20_000)
    queries = keyed_queries(whole, messages)
    assert queries
    assert_java_reads(
        root, whole["config"], messages, queries=queries, log_end=whole["maxPhyOffset"]
    )
