"""Digests are those that the service gives and clients compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.sqs.models import Message as MotoMessage

from inturn.sqs.actions.names import md5_of, md5_of_attributes
from inturn.sqs.model import MessageAttributeValue

NAMES = st.text("abcXYZ019_-.", min_size=1, max_size=10)
VALUES = st.builds(
    MessageAttributeValue, st.sampled_from(["String", "Number", "String.é"]), st.text(min_size=1, max_size=10)
) | (st.builds(MessageAttributeValue, st.just("Binary"), binary_value=st.binary(min_size=1, max_size=10)))


def test_md5_of_an_empty_body() -> None:
    assert md5_of(b"") == "d41d8cd98f00b204e9800998ecf8427e"


def test_md5_of_no_attributes_is_none() -> None:
    assert md5_of_attributes({}) is None


def test_md5_of_an_attribute_equals_a_recorded_service_answer() -> None:
    value = MessageAttributeValue("Number", "1493147359900")
    assert md5_of_attributes({"timestamp": value}) == "235c5c510d26fb653d073faed50ae77c"


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_md5_of_attributes_equals_motos(attributes: dict[str, MessageAttributeValue]) -> None:
    message = MotoMessage("id", "body")
    message.message_attributes = {
        name: {"DataType": value.data_type}
        | ({"StringValue": value.string_value} if value.binary_value is None else {"BinaryValue": value.binary_value})
        for name, value in attributes.items()
    }
    assert md5_of_attributes(attributes) == message.attribute_md5


@pytest.mark.parametrize(
    "other",
    [
        {"a": MessageAttributeValue("String", "y")},
        {"a": MessageAttributeValue("Number", "x")},
        {"b": MessageAttributeValue("String", "x")},
        {"a": MessageAttributeValue("String", binary_value=b"x")},
        {"a": MessageAttributeValue("String", string_list_values=("x",))},
        {"a": MessageAttributeValue("String", binary_list_values=(b"x",))},
    ],
)
def test_md5_of_attributes_depends_on_every_part(other: dict[str, MessageAttributeValue]) -> None:
    assert md5_of_attributes(other) != md5_of_attributes({"a": MessageAttributeValue("String", "x")})
