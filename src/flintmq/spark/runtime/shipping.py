"""How executors get this package: the job brings it along, as a zip of what runs here.

Only modules of FlintMQ are shipped.  The packages it uses (PySpark, PyArrow, NumPy, Numba…) must
be on the machines of the cluster, as for any PySpark job.
"""

import contextlib
import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from pyspark import SparkContext, SparkFiles
from pyspark.sql import SparkSession

from flintmq.spark.runtime.session_settings import is_local

PACKAGES: Final = ("flintmq", "pyspark_flintmq")
_SUFFIXES: Final = (".py", ".typed")
_STREAM_FILES: Final = "streaming_job"
# The first moment a zip can name: an archive of the same modules is the same bytes.
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession) -> None:
    """Give the executors of a session this package, unless they have it as part of the driver.

    The data source is registered too: Spark finds it without that, but forgets to tell the
    executors which of the added files belong to one that it has found by itself.
    """
    if ship_modules(spark.sparkContext):
        from flintmq.spark.source import FlintSource

        spark.dataSource.register(FlintSource)


def ship_modules(context: SparkContext) -> bool:
    """Give the executors this package alone, for tasks in Python; return whether they lacked it."""
    if is_local(context.master):
        return False
    package = package_zip()
    context.addPyFile(str(package))
    # The process that plans a stream looks for added files there, and Spark puts none there.
    target = Path(SparkFiles.getRootDirectory()) / _STREAM_FILES
    target.mkdir(exist_ok=True)
    shutil.copyfile(package, target / package.name)
    return True


def package_zip(directory: Path | None = None) -> Path:
    """Return a zip of this package in ``directory``; one that is there already serves again."""
    content = zip_content()
    digest = hashlib.sha256(content).hexdigest()
    directory = _own_directory() if directory is None else directory
    path = directory / f"flintmq-{digest[:16]}.zip"
    if not path.is_file() or path.read_bytes() != content:
        handle, name = tempfile.mkstemp(dir=directory)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    return path


def zip_content() -> bytes:
    """Return a zip of the modules of this package, the same bytes for the same modules."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for name, source in _modules(files(package), package):
                archive.writestr(zipfile.ZipInfo(name, _MOMENT), source, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _modules(entry, path)
        elif entry.name.endswith(_SUFFIXES):
            yield path, entry.read_bytes()


def _own_directory() -> Path:
    """Return a temporary directory of this user: code from one that others can write is not run."""
    path = Path(tempfile.gettempdir()) / f"flintmq-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    others = stat.S_IRWXG | stat.S_IRWXO
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & others:
        return path
    return Path(tempfile.mkdtemp(prefix="flintmq-"))
