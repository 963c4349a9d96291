"""What the detail of a conflict says: which fields differ, where the first message is still known, and the way out."""

from dataclasses import dataclass
from typing import Any

import pytest

from inturn import Arrival, Gapless, Monotone, Pipeline, Timestamp
from inturn.core.pipeline.order import Order

FIRST = {"g": "a", "r": 1, "id": "x", "sum": 5, "at": 1, "came": 1}
ORDERS = [Gapless("r"), Monotone("r"), Timestamp("r"), Arrival()]


def keep(state: list[Any], message: Any) -> tuple[list[Any], list[Any]]:
    return [*state, 1], []


def pipeline(order: Order, handler: Any = keep, **options: Any) -> Pipeline:
    ids = {} if order.has_revisions else {"id": "id"}
    return Pipeline(name="p", group="g", order=order, state=list, handler=handler, arrival="came", **ids, **options)


def again(**changed: Any) -> dict[str, Any]:
    return FIRST | {"came": 2} | changed


def detail(pipe: Pipeline, *messages: Any) -> str:
    (rejected,) = pipe.replay(messages).rejected
    assert rejected.reason == "conflict"
    return rejected.detail


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_conflict_detail_names_the_differing_fields(order: Order) -> None:
    text = detail(pipeline(order), FIRST, again(sum=6, at=2))
    assert "'at', 'sum'" in text
    assert "ignore=" in text


def test_conflict_detail_names_the_fields_of_a_held_message_in_later_steps() -> None:
    pipe = pipeline(Gapless("r"))
    held = pipe.replay([FIRST | {"r": 3}])
    (rejected,) = pipe.replay([again(r=3, at=2)], after=held).rejected
    assert "(in 'at');" in rejected.detail


def test_conflict_detail_treats_null_as_absent_and_names_new_fields() -> None:
    assert "(in 'new');" in detail(pipeline(Gapless("r")), FIRST | {"gone": None}, again(new=1))


def test_conflict_detail_names_the_first_five_of_many_fields() -> None:
    fields = {f"f{number}": number for number in range(9)}
    assert "'f0', 'f1', 'f2', 'f3', 'f4' and 4 more);" in detail(pipeline(Gapless("r")), FIRST, again(**fields))


def test_conflict_detail_omits_ignored_fields() -> None:
    assert "(in 'sum');" in detail(pipeline(Gapless("r"), ignore=["at"]), FIRST, again(sum=6, at=2))


@dataclass
class Paid:
    g: str
    r: int
    sum: int
    came: int = 0


def test_conflict_detail_names_the_fields_of_a_message_type() -> None:
    pipe = pipeline(Gapless("r"), message=Paid)
    assert "(in 'sum');" in detail(pipe, Paid("a", 1, 5, 1), Paid("a", 1, 6, 2))


def test_conflict_detail_omits_fields_for_a_message_applied_in_an_earlier_step() -> None:
    pipe = pipeline(Gapless("r"))
    (rejected,) = pipe.replay([again(at=2)], after=pipe.replay([FIRST])).rejected
    assert "differs" not in rejected.detail
    assert "ignore=" in rejected.detail


def test_conflict_detail_omits_fields_if_the_handler_changed_the_message() -> None:
    def change(state: list[Any], message: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        message["sum"] = 0
        return state, []

    assert "differs" not in detail(pipeline(Gapless("r"), change), FIRST, again(at=2))
