"""A plugin of pytest: packages that the light environment lacks are not found, as if not there."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final

HIDDEN: Final = frozenset({"llvmlite", "numba", "numpy", "pandas", "pyarrow", "pyspark"})


class _LightFinder(PathFinder):
    """Finds modules where Python does, but for the hidden ones."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in HIDDEN:
            return None
        return PathFinder.find_spec(fullname, path, target)


sys.meta_path = [_LightFinder if finder is PathFinder else finder for finder in sys.meta_path]
