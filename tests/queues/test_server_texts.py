"""Any text is kept in PostgreSQL, different ones stay different, and their order is as it was."""

from hypothesis import given
from hypothesis import strategies as st

from inturn.store.postgres.texts import read, written

TEXTS = st.text(st.sampled_from("\0\1\2a"), max_size=6)


@given(one=TEXTS, other=TEXTS)
def test_encoded_texts_decode_equal_and_sort_alike_without_nul(one: str, other: str) -> None:
    assert "\0" not in written(one)
    assert read(written(one)) == one
    assert (written(one) < written(other)) == (one < other)


def test_ordinary_texts_are_stored_unchanged() -> None:
    for text in ("", "acct-1", "é\\x00\x02"):
        assert written(text) is text
