"""Shared libraries of optional packages, loaded while other threads go on.

An import loads a library with the interpreter's lock held: that of LLVM, 100 MiB, for 7 ms, and
for 27 ms or more where the file has left the page cache.  A foreign call leaves the lock alone, and
an import that comes later finds the library loaded.
"""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

LLVM_PACKAGE: Final = "llvmlite"


def load_libraries(package: str) -> list[Path]:
    """Load the shared libraries that a package has, if it is installed; return which were.

    The package itself is not imported.  Where this cannot be done, its import does it.
    """
    if sys.platform == "win32":
        return []
    spec = importlib.util.find_spec(package)
    roots = [] if spec is None else spec.submodule_search_locations or []
    open_library = ctypes.CDLL(None).dlopen
    open_library.argtypes, open_library.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    # Extension modules need names of the interpreter and are small; they are left alone.
    found = [path for root in roots for path in sorted(Path(root).rglob("lib*.so"))]
    return [path for path in found if open_library(os.fsencode(path), os.RTLD_NOW)]
