"""The extra ``spark``: its packages are looked for before a job loads them."""

from importlib.util import find_spec
from typing import Final

import click

from flintmq.cli.exit_codes import EXIT_UNREADABLE

JOB_PACKAGES: Final = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "numba")
PLOT_PACKAGE: Final = "matplotlib"


class SparkMissingError(click.ClickException):
    """A package of the extra ``spark`` is not installed."""

    exit_code = EXIT_UNREADABLE

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'flintmq[spark]'")


def require_packages(*names: str) -> None:
    """Raise SparkMissingError for the first package that is not installed; none is loaded."""
    for name in names:
        if find_spec(name) is None:
            raise SparkMissingError(name)
