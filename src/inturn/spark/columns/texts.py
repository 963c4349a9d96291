"""The rule for texts over Arrow columns: what is no name of a group and no id.

What the rule is, ``inturn.core.texts`` says.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.texts import name_fault


def name_faults(what: str, column: pa.ChunkedArray) -> dict[int, str]:
    """Return why texts of a column are no names of groups and no ids, by row."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or not len(column):
        return {}
    lengths = pc.utf8_length(column)
    wrong = pc.or_(pc.less(lengths, 1), pc.greater(lengths, limits.ID_LENGTH))
    if any(_has_nul(chunk) for chunk in column.chunks):
        wrong = pc.or_(wrong, pc.match_substring(column, "\0"))
    rows = np.flatnonzero(pc.fill_null(wrong, False).to_numpy()).tolist()  # noqa: FBT003
    return {row: name_fault(what, column[row].as_py()) for row in rows}


def _has_nul(chunk: pa.Array) -> bool:
    """Whether one of the bytes is zero: a look at all of them costs less than one at each text."""
    data = chunk.buffers()[2]
    return data is not None and not np.frombuffer(data, dtype=np.uint8).all()
