"""Names that a package exports without loading their modules until somebody asks for them.

The package of a job exports functions whose modules load PySpark and PyArrow, which takes seconds.
Its reports and limits are read by the command line as well, which has to start without either.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_exports(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package; ``names`` are its exports by their modules."""
    module_of = {name: module for module, exported in names.items() for name in exported}

    def get(name: str) -> object:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module}"), name)

    return get
