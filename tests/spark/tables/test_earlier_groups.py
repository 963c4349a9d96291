"""The index of groups against a dictionary, with many groups on one hash."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from inturn.spark.tables.earlier_groups import RowIndex

group = st.tuples(st.integers(-3, 3), st.sampled_from("abc"))
"""A hash, and what else is in the name."""


def columns(groups: list[tuple[int, str]]) -> tuple[np.ndarray, pa.Array]:
    names = pa.array([f"{hash_}{rest}" for hash_, rest in groups], pa.string())
    return np.array([hash_ for hash_, _ in groups], dtype=np.int64), names


@given(
    st.lists(st.sets(group).map(sorted), max_size=5), st.lists(st.tuples(st.integers(-4, 4), st.sampled_from("abc")))
)
def test_the_group_index_behaves_like_a_dictionary(
    added: list[list[tuple[int, str]]], wanted: list[tuple[int, str]]
) -> None:
    hashes = np.unique(np.array([hash_ for groups in added for hash_, _ in groups], dtype=np.int64))
    index, known = RowIndex(hashes), dict[tuple[int, str], int]()
    for groups in added:
        new = index.add(*columns(groups))
        assert [groups[number] for number in new.tolist()] == [entry for entry in groups if entry not in known]
        for entry in groups:
            known.setdefault(entry, len(known))
        assert len(index) == len(known)
    assert index.rows_of(*columns(wanted)).tolist() == [known.get(entry, -1) for entry in wanted]
