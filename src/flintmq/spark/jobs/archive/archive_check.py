"""Checking an archive against its manifests: files, counts, and that records come out again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.offline.store_lock import hold_directory
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_columns import with_topic
from flintmq.spark.jobs.archive.archive_manifest import (
    ArchivedFile,
    ArchiveDirectory,
    Manifest,
    add_checksums,
    file_sha256,
)
from flintmq.spark.jobs.archive.record_codec import encode_records, hash_pieces, hash_sum
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.runtime.spark_session import TaskSession
from flintmq.spark.runtime.stage_names import stage_name

PROBLEMS_MAX: Final = 1000
_BATCH_ROWS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCheck:
    """What a check has found; ``problems`` are in words, at most PROBLEMS_MAX of them.

    ``damages`` is what the runs have left out of the logs that they read.
    """

    archive: Path
    run_count: int
    file_count: int
    record_count: int
    problems: tuple[str, ...]
    damages: Damages

    @property
    def ok(self) -> bool:
        """Whether all is as the manifests say."""
        return not self.problems


def check_archive(
    spark: TaskSession, archive: Path | str, *, recover: bool = False
) -> ArchiveCheck:
    """Read a whole archive and compare it with its manifests.

    With ``recover``, ``current.json`` is first made again from the manifests.

    Raises:
        ArchiveError: there is no archive, ``current.json`` or a manifest is lost, or no run of it
            was ever finished.
        StoreInUseError: a run is adding to the archive that is to be recovered.
    """
    target = ArchiveDirectory(Path(archive).resolve())
    if not target.exists():
        raise ArchiveError(str(archive), "there is no archive")
    if recover:
        with hold_directory(target.own):
            target.recover()
    manifests = target.manifests()
    files = [file for manifest in manifests for file in manifest.files]
    problems: list[str] = []
    record_count = 0
    if files:
        context = spark.sparkContext
        slices = min(len(files), max(context.defaultParallelism * 4, 1))
        check = FileCheck(str(target.root))
        with stage_name(context, "reading Parquet files"):
            found = context.parallelize(files, slices).map(check).collect()
        for rows, problem in found:
            record_count += rows
            problems += [problem] if problem else []
    problems += _sum_problems(manifests)
    problems += _state_problems(target, manifests)
    problems += _strays(target, manifests)
    return ArchiveCheck(
        archive=target.root,
        run_count=len(manifests),
        file_count=len(files),
        record_count=record_count,
        problems=tuple(problems[:PROBLEMS_MAX]),
        damages=added(store.damages for manifest in manifests for store in manifest.stores),
    )


@dataclass(frozen=True, slots=True)
class FileCheck:
    """Reads one file, on an executor."""

    root: str

    def __call__(self, file: ArchivedFile) -> tuple[int, str]:
        """Return how many records a file gives, and what is wrong with it."""
        path = Path(self.root) / file.path
        try:
            size = path.stat().st_size
            if size != file.size:
                return 0, f"{file.path}: {size} bytes, the manifest has {file.size}"
            if file_sha256(path) != file.sha256:
                return 0, f"{file.path}: other bytes than when it was written"
            found = _records(path, file.topic)
        except OSError as error:
            return 0, f"{file.path}: {error.strerror or error}"
        if found != (file.rows, file.record_bytes, file.checksum):
            return found[0], (
                f"{file.path}: {found[0]} records of {found[1]} bytes with the checksum "
                f"{found[2]:#x}; the manifest has {file.rows} of {file.record_bytes} with "
                f"{file.checksum:#x}"
            )
        return file.rows, ""


def _records(path: Path, topic: str | None) -> tuple[int, int, int]:
    """Return count, bytes and checksum of the records that a file gives."""
    count = size = checksum = 0
    for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS):
        (rows,) = with_topic(pa.Table.from_batches([batch]), topic).to_batches()
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        encoded = encode_records(columns)
        hashes = hash_pieces(encoded.data, encoded.at[:-1], encoded.sizes)
        count += batch.num_rows
        size += len(encoded.data)
        checksum = add_checksums(checksum, hash_sum(hashes))
    return count, size, checksum


def _sum_problems(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield where the files of a store are not what its manifest says in all."""
    for manifest in manifests:
        for store in manifest.stores:
            mine = [file for file in manifest.files if file.store == store.name]
            found = (
                sum(file.rows for file in mine),
                sum(file.record_bytes for file in mine),
                add_checksums(*(file.checksum for file in mine)),
            )
            if found != (store.record_count, store.record_bytes, store.checksum):
                yield (
                    f"run {manifest.run}: the files of {store.name} are not the records that the "
                    "manifest counts"
                )
            queues = store.queues
            if queues is not None and store.record_count != sum(one.record_count for one in queues):
                yield (
                    f"run {manifest.run}: the queues of {store.name} have other records than the "
                    "manifest counts"
                )


def _state_problems(target: ArchiveDirectory, manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield the state files that are not what they were."""
    for manifest in manifests:
        for number, store in enumerate(manifest.stores):
            directory = target.state_directory(manifest.run, number)
            for name, digest in store.state_files.items():
                path = directory / name
                if not path.is_file() or file_sha256(path) != digest:
                    where = path.relative_to(target.root)
                    yield f"{where}: is not the state file that was archived"


def _strays(target: ArchiveDirectory, manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield the rows that no manifest in force names."""
    for name in target.strays():
        yield f"{name}: no manifest names it"
    for manifest in manifests:
        known = {file.path for file in manifest.files}
        for path in sorted(target.run_directory(manifest.run).rglob("*.parquet")):
            name = str(path.relative_to(target.root))
            if name not in known:
                yield f"{name}: no manifest names it"
