"""Pipelines made of every kind of code that a user's own module may have; the workers of a test do not have it."""

import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from inturn import Gapless, Pipeline

LIMIT = 10


class Colour(enum.Enum):
    """An Enum."""

    RED = "red"
    BLUE = "blue"


@dataclass(kw_only=True)
class Part:
    """A dataclass with defaults, a method and a type of this module."""

    group: str
    revision: int
    size: Decimal = Decimal("1.50")
    colour: Colour = Colour.RED
    marks: list[int] = field(default_factory=list)

    def doubled(self) -> Decimal:
        """A method."""
        return self.size * 2


class Money(msgspec.Struct, frozen=True, order=True):
    """A frozen Struct that refers to itself in its methods."""

    cents: int = 0

    @classmethod
    def of(cls, text: str) -> "Money":
        """A class method."""
        return Money(int(text) * LIMIT)

    @property
    def half(self) -> "Money":
        """A property."""
        return Money(self.cents // 2)

    def plus(self, other: "Money") -> "Money":
        """A method."""
        return Money(self.cents + other.cents)

    def __add__(self, other: "Money") -> "Money":
        return self.plus(other)

    def __str__(self) -> str:
        return f"{self.cents / 100:.2f}"


@dataclass
class Purse:
    """A dataclass that holds Structs."""

    coins: list[Money] = field(default_factory=list)


@dataclass
class Shelf:
    """A dataclass for ``pipelines.latest``, with a default that is created for each."""

    marks: list[str] = field(default_factory=list)
    is_deleted: bool = False


@dataclass
class Owner:
    """A dataclass that holds such a dataclass."""

    purse: Purse | None = None


class Checked(msgspec.Struct):
    """A Struct that looks at what it is given."""

    cents: int = 0

    def __post_init__(self) -> None:
        if self.cents < 0:
            msg = "below zero"
            raise ValueError(msg)


class Event(msgspec.Struct, tag_field="kind"):
    """The root of a small tree."""

    group: str
    revision: int

    def tell(self) -> str:
        """A method that a subclass extends."""
        return f"event {self.revision}"


class Deposit(Event, tag="in"):
    """A tagged Struct with a field of another, and a default that is made anew."""

    money: Money = Money(5)
    notes: list[str] = []

    def tell(self) -> str:
        """A method that calls its base's."""
        return "deposit, " + super().tell()


class Named(msgspec.Struct, rename="camel"):
    """A Struct with other names in JSON."""

    first_name: str = "Ada"


class Keywords(msgspec.Struct, kw_only=True):
    """A Struct that takes only keyword arguments, so that what is needed may come last."""

    size: int = 1
    group: str
    revision: int


def fold(account: Any, part: Any) -> Any:
    """A handler that uses a global of its module and a function within itself."""

    def room(size: Decimal) -> bool:
        return size < LIMIT

    account.setdefault(part.colour.value, 0)
    account[part.colour.value] += 1
    return account, [part.doubled() if room(part.size) else None]


def made(**arguments: Any) -> Pipeline:
    """A pipeline with these arguments."""
    plain = {"name": "workshop", "group": "group", "order": Gapless("revision"), "handler": lambda s, m: (s, [m])}
    return Pipeline(**{**plain, **arguments})


parts = made(message=Part, handler=fold)
money = made(state=Money, handler=lambda state, message: (state.plus(Money.of(message["amount"])).half, []))
added = made(state=Money, handler=lambda state, message: (state + Money(1), [str(state)]))
owner = made(state=Owner, handler=lambda state, message: (Owner(Purse([Money(1)])), []))
checked = made(state=Checked)
deposits = made(message=Deposit, handler=lambda state, message: (state, [message.tell(), isinstance(message, Event)]))
tagged = made(message=Deposit)
named = made(state=Named)
keywords = made(message=Keywords)
