"""Models of pydantic on Spark: columns of their fields, and the same results as in the replay and in the worker."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from inturn import Monotone, Pipeline
from inturn.core.errors import StateError
from inturn.spark.columns.dataframe import column_kinds
from inturn.spark.columns.state_codec import StateCodec
from inturn.testing import disorder, same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]


class Line(BaseModel):
    sku: str = Field(alias="SKU")
    price: Decimal = Decimal("1.50")
    raw: bytes = b""


class Order(BaseModel):
    model_config = ConfigDict(strict=True)
    account: str
    revision: int = Field(alias="version")
    amount: int = Field(gt=0)
    at: dt.datetime | None = None
    data: bytes | None = None
    lines: list[Line] = Field(default_factory=list)
    note: str = "none"

    @field_validator("note")
    @classmethod
    def short(cls, value: str) -> str:
        return value[:4]


class Balance(BaseModel):
    total: int = 0
    at: dt.datetime | None = None
    data: bytes | None = None
    lines: dict[str, Line] = Field(default_factory=dict)


def pay(state: Balance, message: Order) -> tuple[Balance, list[Any]]:
    lines = {**state.lines, **{line.sku: line for line in message.lines}}
    balance = Balance(total=state.total + message.amount, at=message.at, data=message.data, lines=lines)
    return balance, [balance, message]


LEDGER = Pipeline(name="ledger", group="account", order=Monotone("revision"), message=Order, state=Balance, handler=pay)


@pytest.mark.thorough
def test_replay_worker_and_batch_agree_on_pydantic_models(spark: "SparkSession") -> None:
    history: list[Row] = [
        {
            "account": account,
            "revision": n,
            "amount": n % 7,  # zero is invalid
            "at": dt.datetime(2024, 1, n, tzinfo=dt.UTC) if n % 3 else None,
            "data": b"\xff" * n if n % 2 else None,
            "lines": [{"sku": f"s{n}", "price": None, "raw": b"\xfe"}],
            "note": "a long note" if n % 5 else None,
        }
        for n in range(1, 15)
        for account in "ab"
    ]
    result = same(
        LEDGER,
        disorder(history, seed=3),
        engines=("replay", "worker", "batch"),
        spark=spark,
    )
    assert result.states["a"]["lines"]["s13"]["price"] == "1.5"
    assert result.rejected["a"]["invalid"] >= 2


def test_a_model_is_stored_in_columns_of_its_fields() -> None:
    assert column_kinds(LEDGER) == {
        "account": "string",
        "revision": "bigint",
        "amount": "bigint",
        "at": "timestamp",
        "data": "binary",
        "lines": "string",
        "note": "string",
    }
    codec = StateCodec(LEDGER)
    assert codec.type.field("at").type == pa.timestamp("us", tz="UTC")
    state = LEDGER.normalize(
        Balance(
            total=5, at=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), data=b"\xff", lines={"s": Line(SKU="s", raw=b"\xfe")}
        )
    )
    (decoded,) = codec.unpack(codec.pack([state]))
    assert decoded == state
    assert LEDGER.normalize(decoded) is decoded


def test_a_nested_model_field_with_a_changed_type_is_refused() -> None:
    class OtherLine(BaseModel):
        sku: int = 0

    class OtherBalance(Balance):
        lines: dict[str, OtherLine] = {}  # type: ignore[assignment]

    stored = StateCodec(LEDGER).signature
    with pytest.raises(StateError, match="'lines'"):
        StateCodec(replace(LEDGER, state=OtherBalance)).check(stored)
