"""Names in the Query protocol that differ from the API's model.

Source: the ``xmlName`` and ``xmlFlattened`` traits of the model, which its JSON edition leaves out. A list or a map has
no element of its own: each of its items has one, with a name of its own.
"""

from typing import Final

from msgspec import Struct, inspect

_ONE: Final = {
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "AttributeNames": "AttributeName",
    "Attributes": "Attribute",
    "BinaryListValues": "BinaryListValue",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "StringListValues": "StringListValue",
    "TagKeys": "TagKey",
    "Tags": "Tag",
    "queueUrls": "QueueUrl",
    "tags": "Tag",
}


def members(kind: type[Struct]) -> list[tuple[str, str, inspect.Type]]:
    """Return the fields of a type, each with its Python name, its API name and its type."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - for the type checker
    return [(field.name, field.encode_name, _present(field.type)) for field in info.fields]


def query_name(name: str, kind: inspect.Type) -> str:
    """Return the Query name of a member, given its API name; of a list or a map, the name of one item."""
    match kind:
        case (
            inspect.ListType(item_type=inspect.StructType(cls=cls))
            | inspect.VarTupleType(item_type=inspect.StructType(cls=cls))
        ):
            return _ONE.get(name, cls.__name__)
        case inspect.ListType() | inspect.VarTupleType() | inspect.DictType():
            return _ONE[name]
        case _:
            return name


def key_name(name: str) -> str:
    """Return the name of a key in a map whose elements have this name."""
    return "Key" if name == "Tag" else "Name"


def _present(kind: inspect.Type) -> inspect.Type:
    """Return the type of an optional member without None."""
    if isinstance(kind, inspect.UnionType):
        return next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    return kind
