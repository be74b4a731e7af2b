"""How many random lives the models of archives and streams run."""

from pathlib import Path

from tests.spark import test_follower_model as stores
from tests.spark.live import test_archive_model as archives
from tests.spark.live import test_stream_model as streams

PAGE = Path(__file__).parents[3] / "docs" / "operating" / "proofs.md"
LEAST = 2000


def test_the_page_tells_how_many_lives_the_models_run() -> None:
    count = (
        streams.SEEDS
        + streams.LENIENT_SEEDS
        + archives.SEEDS
        + archives.LENIENT_SEEDS
        + archives.EXPIRING_SEEDS
        + stores.STREAM_SEEDS
        + stores.LENIENT_SEEDS
        + stores.ARCHIVE_SEEDS
    )
    assert count >= LEAST
    assert f"over {count:,} random lives" in PAGE.read_text()
