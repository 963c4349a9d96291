"""What all tests share: how hard hypothesis tries, and that the quick tests speak first."""

import pytest
from hypothesis import settings

# "ci" gives the same examples on every run, so that a red run is a change of ours; "search" looks for new ones:
# pytest --hypothesis-profile=search
settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs Spark after the others, each kind in its own order."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)
