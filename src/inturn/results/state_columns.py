"""The columns of a state's fields in an Arrow table, beside the column with the whole state as JSON.

A store keeps the shape of its state type, see :func:`inturn.core.pipeline.versions.shape_of`, so the columns are the
same in every table of a pipeline and need no look at the rows. The types are those of the table ``states`` on Spark: a
field of a plain type has a column of that type, a ``Decimal`` or a ``UUID`` is its text, any other field is JSON text.
"""

import datetime as dt
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX: Final = "state_"
_TYPES: Final[dict[str, Any]] = {
    "bool": bool,
    "int": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "float": float,
    "str": str,
    "bytes": bytes,
    "date": dt.date,
    "datetime": Annotated[dt.datetime, msgspec.Meta(tz=True)],
    "Decimal": str,
    "UUID": str,
}
"""The types of a column, by their names in a shape."""


class StateColumn(NamedTuple):
    """The column of a state's field.

    Attributes:
        name: its name.
        field: the field.
        type: the name of the type of its values; None: any, as JSON text.
    """

    name: str
    field: str
    type: str | None

    @property
    def arrow_type(self) -> "pa.DataType":
        """The Arrow type."""
        import pyarrow as pa

        types = {
            "bool": pa.bool_(),
            "int": pa.int64(),
            "float": pa.float64(),
            "bytes": pa.binary(),
            "date": pa.date32(),
            "datetime": pa.timestamp("us", tz="UTC"),
        }
        return types.get(self.type or "", pa.string())

    def value(self, state: Any) -> Any:
        """Return the value in a state; None if the state lacks it, or it does not fit the type."""
        value = state.get(self.field) if isinstance(state, dict) else None
        if value is None:
            return None
        if self.type is None:
            return msgspec.json.encode(value).decode()
        try:
            return msgspec.convert(value, _TYPES[self.type])
        except msgspec.ValidationError:
            return None


def state_columns(shape: Any, taken: Collection[str]) -> list[StateColumn]:
    """Return the columns of a state type's fields; none if it is not a record type.

    Args:
        shape: the shape of the state type.
        taken: names of the table's other columns.
    """
    fields = shape.get("record", {}) if isinstance(shape, dict) else {}
    return [StateColumn(column_of_field(name, taken), name, _plain(field)) for name, field in fields.items()]


def column_of_field(name: str, taken: Collection[str]) -> str:
    """Return the column of a state's field: its name, with a prefix if another column of the table has it.

    >>> taken = ("group", "state")
    >>> [column_of_field(name, taken) for name in ("balance", "Group", "state_group", "state_balance")]
    ['balance', 'state_Group', 'state_state_group', 'state_balance']
    """
    bare = name.lower()
    while bare.startswith(_PREFIX):
        bare = bare.removeprefix(_PREFIX)
    return f"{_PREFIX}{name}" if bare in taken else name


def _plain(shape: Any) -> str | None:
    """Return the plain type of a shape; None if it has none, or several."""
    if isinstance(shape, str):
        return shape if shape in _TYPES else None
    options = [option for option in shape.get("or", ()) if option != "NoneType"]
    if len(options) == 1:
        return _plain(options[0])
    kinds = {type(member).__name__ for member in shape.get("enum", ())}
    return kinds.pop() if len(kinds) == 1 and kinds <= _TYPES.keys() else None
