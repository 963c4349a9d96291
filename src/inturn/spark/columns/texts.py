"""The rule for group names and ids, over Arrow columns; ``inturn.core.texts`` defines it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.texts import name_fault


def name_faults(what: str, column: pa.ChunkedArray) -> dict[int, str]:
    """Return the rows whose text is not valid as a group name or an id, each with the reason."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or not len(column):
        return {}
    lengths = pc.utf8_length(column)
    wrong = pc.or_(pc.less(lengths, 1), pc.greater(lengths, limits.ID_LENGTH))
    if any(_has_nul(chunk) for chunk in column.chunks):
        wrong = pc.or_(wrong, pc.match_substring(column, "\0"))
    rows = np.flatnonzero(pc.fill_null(wrong, False).to_numpy()).tolist()  # noqa: FBT003
    return {row: name_fault(what, column[row].as_py()) for row in rows}


def _has_nul(chunk: pa.Array) -> bool:
    """Return whether any byte is zero; one check of all bytes costs less than one of each text."""
    data = chunk.buffers()[2]
    return data is not None and not np.frombuffer(data, dtype=np.uint8).all()
