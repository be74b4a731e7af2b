"""Tables of fields as numpy has them, see ``flintmq.format.stored.field_table``."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from flintmq.format.stored.field_table import FieldTable

_FORMATS: Final = {"h": ">i2", "i": ">i4", "q": ">i8"}


def field_dtype(table: FieldTable, names: Sequence[str] | None = None) -> np.dtype[np.void]:
    """Return the structured type of the numbers of a table, all of them or some.

    It has the size of the whole table, whichever fields are asked for.
    """
    picked = [(name, code) for name, code in table.fields if names is None or name in names]
    return np.dtype(
        {
            "names": [name for name, _ in picked],
            "formats": [_FORMATS[code] for _, code in picked],
            "offsets": [table.at(name) for name, _ in picked],
            "itemsize": table.size,
        }
    )
