"""What may change in a type within a state: a new field with a default, a text. Anything else is another type."""

from dataclasses import field, make_dataclass
from typing import Any

import pytest

from inturn.spark.columns.state_codec import shape, still_loads


def of(*fields: Any, name: str = "Item", **more: Any) -> Any:
    return make_dataclass(name, fields, **more)


SKU = ("sku", str)
ITEM = of(SKU)
NEW_FIELD = ("count", int, field(default=1))
STILL = {
    "the same": (ITEM, of(SKU)),
    "a text": (ITEM, of(SKU, namespace={"__doc__": "What is sold."})),
    "a field with a default": (ITEM, of(SKU, NEW_FIELD)),
    "a field named as a text is": (of(("title", str)), of(("title", str), ("default", int, 1))),
    "a default": (ITEM, of(("sku", str, "none"))),
    "within a list": (list[ITEM], list[of(SKU, NEW_FIELD)]),
    "within a record": (of(("item", ITEM), name="Line"), of(("item", of(SKU, NEW_FIELD)), name="Line")),
    "a field of a new record": (ITEM, of(SKU, ("next", list[of(("x", int), name="New")], field(default_factory=list)))),
}
OTHER = {
    "a field that is owed": (ITEM, of(SKU, ("count", int))),
    "a field that was lost": (of(SKU, NEW_FIELD), ITEM),
    "a field of another type": (ITEM, of(("sku", int))),
    "a name": (ITEM, of(SKU, name="Thing")),
    "a list of a thing": (ITEM, list[ITEM]),
    "a thing of a list": (list[str], list[int]),
    "a length": (tuple[int, int], tuple[int, int, int]),
    "no schema": (complex, complex),
    "within a list": (list[of(SKU, NEW_FIELD)], list[ITEM]),
}


@pytest.mark.parametrize(("stored", "now"), STILL.values(), ids=STILL)
def test_a_compatible_change_of_a_nested_state_type_still_loads(stored: Any, now: Any) -> None:
    assert still_loads(shape(stored), shape(now))


@pytest.mark.parametrize(("stored", "now"), OTHER.values(), ids=OTHER)
def test_an_incompatible_change_of_a_nested_state_type_does_not_load(stored: Any, now: Any) -> None:
    assert not still_loads(shape(stored), shape(now))
