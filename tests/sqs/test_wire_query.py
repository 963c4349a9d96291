"""Forms as clients have sent them over the years, and what is told of those that cannot be read."""

import json
import re
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from boto_halves import plain

from inturn.serving.http.http1 import Request
from inturn.sqs import errors, limits, wire
from inturn.sqs.errors import SqsError
from inturn.sqs.model import (
    ACTIONS,
    ApiMessage,
    Empty,
    ListQueueTagsAnswer,
    MessageAttributeValue,
    ReceiveMessageAnswer,
)
from inturn.sqs.wire import ApiCall, Protocol

ACTION = {
    "AttributeName": "GetQueueAttributes",
    "AttributeNames": "GetQueueAttributes",
    "Attribute": "SetQueueAttributes",
    "Attributes": "SetQueueAttributes",
    "Tag": "TagQueue",
    "Tags": "TagQueue",
    "TagKey": "UntagQueue",
    "AWSAccountId": "AddPermission",
    "MessageAttribute": "SendMessage",
    "MessageSystemAttribute": "SendMessage",
    "SendMessageBatchRequestEntry": "SendMessageBatch",
    "DeleteMessageBatchRequestEntry": "DeleteMessageBatch",
    "ChangeMessageVisibilityBatchRequestEntry": "ChangeMessageVisibilityBatch",
}


def parsed(form: str, *, target: str = "/", method: str = "POST") -> ApiCall:
    return wire.parse(Request(method, target.encode(), {}, form.encode(), "127.0.0.1:1"))


def read(form: str) -> Any:
    """The one parameter that the form is about, of the action that it belongs to."""
    action = ACTION[re.split("[.=]", form, maxsplit=1)[0]]
    other = "&MessageBody=b" if action == "SendMessage" else ""
    other += "&Label=l&ActionName.1=SendMessage" if action == "AddPermission" else ""
    tree = plain(parsed(f"Action={action}&QueueUrl=q{other}&{form}").params)
    for name in ("QueueUrl", "MessageBody", "Label", "ActionName", "Actions"):
        tree.pop(name, None)
    assert len(tree) <= 1
    return next(iter(tree.values()), None)


def refused(form: str, **how: Any) -> SqsError:
    with pytest.raises(SqsError) as caught:
        parsed(form, **how)
    return caught.value


@pytest.mark.parametrize(
    ("form", "held"),
    [
        ("AttributeName.1=All", ["All"]),
        ("AttributeName.2=B&AttributeName.1=A", ["A", "B"]),
        ("AttributeName.10=C&AttributeName.9=B&AttributeName.1=A", ["A", "B", "C"]),
        ("AttributeName.0=A&AttributeName.1=B", ["A", "B"]),
        ("AttributeName.999999999=A", ["A"]),
        ("AttributeName=All", ["All"]),
        ("AttributeName=", None),
        ("AttributeNames.1=All", ["All"]),
        ("AttributeNames.member.1=A&AttributeNames.member.2=B", ["A", "B"]),
        ("AttributeName.member.1=A", ["A"]),
        ("Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=40", {"VisibilityTimeout": "40"}),
        ("Attribute.2.Value=x&Attribute.1.Name=A&Attribute.1.Value=&Attribute.2.Name=B", {"A": "", "B": "x"}),
        ("Attribute.Name=VisibilityTimeout&Attribute.Value=40", {"VisibilityTimeout": "40"}),
        ("Attributes.1.Name=A&Attributes.1.Value=x", {"A": "x"}),
        ("Attributes.entry.1.key=A&Attributes.entry.1.value=x", {"A": "x"}),
        ("Attribute.entry.1.Name=A&Attribute.entry.1.Value=x", {"A": "x"}),
        ("Tag.1.Key=a&Tag.1.Value=1&Tag.2.Key=b&Tag.2.Value=2", {"a": "1", "b": "2"}),
        ("Tags.entry.1.key=a&Tags.entry.1.value=1", {"a": "1"}),
        ("Tag.Key=a&Tag.Value=1", {"a": "1"}),
        ("TagKey.1=a&TagKey.2=b", ["a", "b"]),
        ("AWSAccountId.1=1&AWSAccountId.2=2", ["1", "2"]),
        (
            "MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=Binary&MessageAttribute.1.Value.BinaryValue=AAE%3D",
            {"a": {"DataType": "Binary", "BinaryValue": b"\0\1"}},
        ),
        (
            "MessageAttribute.Name=a&MessageAttribute.Value.DataType=String&MessageAttribute.Value.StringValue=x+y%2Bz",
            {"a": {"DataType": "String", "StringValue": "x y+z"}},
        ),
        (
            (
                "MessageAttribute.1.Name=a&MessageAttribute.1.Value.StringListValue.2=y"
                "&MessageAttribute.1.Value.StringListValue.1=x"
            ),
            {"a": {"StringListValues": ["x", "y"]}},
        ),
        (
            "MessageAttribute.1.Name=a&MessageAttribute.1.Value.StringListValue.member.1=x",
            {"a": {"StringListValues": ["x"]}},
        ),
        (
            (
                "MessageSystemAttribute.1.Name=AWSTraceHeader&MessageSystemAttribute.1.Value.DataType=String"
                "&MessageSystemAttribute.1.Value.StringValue=Root%3D1"
            ),
            {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
        ),
        (
            (
                "SendMessageBatchRequestEntry.1.Id=i&SendMessageBatchRequestEntry.1.MessageBody=b"
                "&SendMessageBatchRequestEntry.1.DelaySeconds=5"
                "&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=a"
                "&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=Number"
                "&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=-1"
            ),
            [
                {
                    "Id": "i",
                    "MessageBody": "b",
                    "DelaySeconds": 5,
                    "MessageAttributes": {"a": {"DataType": "Number", "StringValue": "-1"}},
                }
            ],
        ),
        (
            "DeleteMessageBatchRequestEntry.1.Id=i&DeleteMessageBatchRequestEntry.1.ReceiptHandle=h",
            [{"Id": "i", "ReceiptHandle": "h"}],
        ),
        (
            (
                "ChangeMessageVisibilityBatchRequestEntry.1.Id=i&ChangeMessageVisibilityBatchRequestEntry.1.ReceiptHandle=h"
                "&ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout=0"
            ),
            [{"Id": "i", "ReceiptHandle": "h", "VisibilityTimeout": 0}],
        ),
    ],
)
def test_form_lists_are_parsed_in_every_spelling(form: str, held: object) -> None:
    assert read(form) == held


def test_the_queue_url_may_be_given_by_the_path_alone() -> None:
    assert plain(parsed("Action=PurgeQueue", target="/0/q").params) == {"QueueUrl": "/0/q"}
    assert plain(parsed("Action=PurgeQueue&QueueUrl=http://h/0/other", target="/0/q").params) == {
        "QueueUrl": "http://h/0/other"
    }
    assert plain(parsed("Action=ListQueues", target="/0/q").params) == {}
    assert refused("Action=PurgeQueue").message == "The request must contain the parameter QueueUrl."


def test_a_form_in_the_query_string_is_parsed() -> None:
    call = parsed("", method="GET", target="/0/q?Action=SendMessage&MessageBody=a%0Ab&Version=2012-11-05")
    assert call == ApiCall(Protocol.QUERY, "SendMessage", call.params)
    assert plain(call.params) == {"QueueUrl": "/0/q", "MessageBody": "a\nb"}
    assert (
        parsed("MessageBody=b", target="/0/q?Action=SendMessage").params
        == parsed("Action=SendMessage&MessageBody=b", target="/0/q").params
    )
    assert refused("Action=ListQueues", method="GET").query_code == "UnknownOperationException"


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
def test_creating_or_listing_queues_at_a_queue_url_is_refused(action: str) -> None:
    form = f"Action={action}&QueueName=q"
    for target in ("/000000000000/q", "/behind/a/proxy/000000000000/q.fifo"):
        error = refused(form, target=target)
        assert error.query_code == "InvalidAction"
        assert error.message == f"The action {action} is not valid for this endpoint."
    assert parsed(form).action == parsed(form, target="/behind/a/proxy/").action == action


def test_a_get_without_an_action_gets_404_in_xml() -> None:
    response = wire.refused(Protocol.QUERY, refused("", method="GET", target="/000000000000/q"), "r")
    assert (response.status, response.body) == (404, b"<UnknownOperationException/>")
    assert response.headers == ((b"x-amzn-RequestId", b"r"),)


@pytest.mark.parametrize("accept", ["application/json", "application/x-amz-json-1.0", "text/plain, application/json"])
@pytest.mark.parametrize("target", ["/", "/000000000000/q", "/?Version=2012-11-05"])
def test_a_get_without_an_action_gets_404_in_json_if_accepted(accept: str, target: str) -> None:
    request = Request("GET", target.encode(), {b"accept": accept.encode()}, b"", "")
    with pytest.raises(SqsError) as caught:
        wire.parse(request)
    response = wire.refused(wire.protocol_of(request), caught.value, "r")
    assert (response.status, response.content_type) == (404, "application/json")
    assert json.loads(response.body) == {
        "__type": "com.amazon.coral.service#UnknownOperationException",
        "message": "The request must contain the parameter Action.",
    }
    assert (b"x-amzn-RequestId", b"r") in response.headers


@pytest.mark.parametrize(
    ("form", "body"),
    [("a+b%2Bc%20", "a b+c "), ("%D0%B6", "ж"), ("ж", "ж"), ("%zz%4", "%zz%4"), ("a=b", "a=b"), ("%00%0D", "\0\r")],
)
def test_percent_escapes_in_forms_are_decoded(form: str, body: str) -> None:
    params = plain(parsed(f"Action=SendMessage&QueueUrl=q&MessageBody={form}").params)
    assert params["MessageBody"] == body


@pytest.mark.parametrize(
    ("form", "code", "says"),
    [
        ("", "UnknownOperationException", "Action"),
        ("Version=2012-11-05", "UnknownOperationException", "Action"),
        ("Action=", "InvalidAction", "The action  is not valid"),
        ("Action=DropQueue", "InvalidAction", "The action DropQueue is not valid for this endpoint."),
        ("Action=SendMessage&QueueUrl=q", "MissingParameter", "The request must contain the parameter MessageBody."),
        (
            (
                "Action=SendMessageBatch&QueueUrl=q&SendMessageBatchRequestEntry.1.Id=a"
                "&SendMessageBatchRequestEntry.1.MessageBody=a&SendMessageBatchRequestEntry.2.Id=a"
            ),
            "MissingParameter",
            "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody.",
        ),
        ("Action=TagQueue&QueueUrl=q&Tag.1.Key=a", "MissingParameter", "Tag.1.Value."),
        ("Action=TagQueue&QueueUrl=q&Tag.1.Value=a", "MissingParameter", "Tag.1.Name."),
        ("Action=TagQueue&QueueUrl=q&Tag.1=a", "MissingParameter", "Tag.1.Name."),
        ("Action=TagQueue&QueueUrl=q&Tag=a", "MissingParameter", "Tag.Name."),
        ("Action=ReceiveMessage&QueueUrl=q&WaitTimeSeconds=", "InvalidParameterValue", "WaitTimeSeconds"),
        ("Action=ReceiveMessage&QueueUrl=q&WaitTimeSeconds=1.5", "InvalidParameterValue", "Value 1.5 for parameter"),
        ("Action=ReceiveMessage&QueueUrl=q&WaitTimeSeconds=%D9%A3", "InvalidParameterValue", "Must be an integer."),
        ("Action=ReceiveMessage&QueueUrl=q&WaitTimeSeconds=" + 5000 * "9", "InvalidParameterValue", "99…"),
        (
            (
                "Action=SendMessage&QueueUrl=q&MessageBody=b&MessageAttribute.1.Name=a"
                "&MessageAttribute.1.Value.BinaryValue=%25"
            ),
            "InvalidParameterValue",
            "base64",
        ),
        ("Action=PurgeQueue&QueueUrl=q&QueueUrl=p", "MalformedQueryString", "QueueUrl has two different values"),
        ("Action=PurgeQueue&Action=DeleteQueue&QueueUrl=q", "MalformedQueryString", "Action has two different values"),
        ("Action=PurgeQueue&QueueUrl=%FF", "MalformedQueryString", "UTF-8"),
        ("Action=PurgeQueue&QueueUrl=%ED%A0%80", "MalformedQueryString", "UTF-8"),
        ("Action=PurgeQueue&QueueUrl.1=q", "MalformedQueryString", "QueueUrl has no value"),
        ("Action=PurgeQueue&QueueUrl=q&QueueUrl.1=q", "MalformedQueryString", "a value and members"),
        ("Action=PurgeQueue&QueueUrl.1=q&QueueUrl=q", "MalformedQueryString", "a value and members"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.1=a&TagKey.x=b", "MalformedQueryString", "with and without numbers"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.1=a&TagKey.01=b", "MalformedQueryString", "with and without numbers"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.1.2=a", "MalformedQueryString", "TagKey.1 has no value"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.1234567890=a", "MalformedQueryString", "TagKey has no value"),
        ("Action=SendMessageBatch&QueueUrl=q&SendMessageBatchRequestEntry.1=a", "MalformedQueryString", "no members"),
        (
            "Action=TagQueue&QueueUrl=q&Tag.1.Key=a&Tag.1.Value=1&Tag.2.Key=a&Tag.2.Value=1",
            "MalformedQueryString",
            "Tag has a twice",
        ),
        ("Action=TagQueue&QueueUrl=q&Tag" + 5000 * ".1" + "=a", "MalformedQueryString", "too many parts"),
        ("Action=PurgeQueue" + "".join(f"&x{n}=1" for n in range(limits.FORM_FIELDS)), "MalformedQueryString", "2000"),
    ],
)
def test_malformed_forms_are_refused_with_the_reason(form: str, code: str, says: str) -> None:
    error = refused(form)
    assert error.query_code == code
    assert says in error.message
    assert len(error.message) < 400


def test_unknown_form_parameters_are_ignored() -> None:
    form = "Action=PurgeQueue&QueueUrl=q&Attribute.1.Name=a&x&=&A..B=1&Version=2012-11-05&X-Amz-Signature=0"
    assert plain(parsed(form).params) == {"QueueUrl": "q"}


def test_a_parameter_repeated_with_the_same_value_is_accepted() -> None:
    assert plain(parsed("Action=PurgeQueue&QueueUrl=q", target="/?Action=PurgeQueue").params) == {"QueueUrl": "q"}


def test_an_xml_response_equals_the_services_document() -> None:
    value = MessageAttributeValue("Binary", binary_value=b"\0\1")
    message = ApiMessage("m", "h", "d", '<a b="c">&\r\n\0\ud800</a>', {"SenderId": "s"}, None, {"k": value})
    call = ApiCall(Protocol.QUERY, "ReceiveMessage", ReceiveMessageAnswer())
    response = wire.answered(call, ReceiveMessageAnswer([message, message]), "r&")
    once = (
        "<Message><MessageId>m</MessageId><ReceiptHandle>h</ReceiptHandle><MD5OfBody>d</MD5OfBody>"
        "<Body>&lt;a b=&quot;c&quot;&gt;&amp;&#xD;\n\ufffd\ufffd&lt;/a&gt;</Body>"
        "<Attribute><Name>SenderId</Name><Value>s</Value></Attribute>"
        "<MessageAttribute><Name>k</Name><Value><DataType>Binary</DataType><BinaryValue>AAE=</BinaryValue></Value>"
        "</MessageAttribute></Message>"
    )
    assert response.content_type == "text/xml"
    assert response.body.decode() == (
        '<?xml version="1.0"?><ReceiveMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"<ReceiveMessageResult>{once}{once}</ReceiveMessageResult>"
        "<ResponseMetadata><RequestId>r&amp;</RequestId></ResponseMetadata></ReceiveMessageResponse>"
    )
    assert ET.fromstring(response.body) is not None  # noqa: S314 - our own


def test_an_xml_error_equals_the_services_document() -> None:
    response = wire.refused(Protocol.QUERY, errors.queue_does_not_exist(), "r")
    assert response.status == 400
    assert response.body.decode() == (
        '<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        "<Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code>"
        "<Message>The specified queue does not exist for this wsdl version.</Message><Detail/></Error>"
        "<RequestId>r</RequestId></ErrorResponse>"
    )


def test_empty_xml_elements_are_self_closing() -> None:
    call = ApiCall(Protocol.QUERY, "ReceiveMessage", ReceiveMessageAnswer())
    assert b"<ReceiveMessageResult/><ResponseMetadata>" in wire.answered(call, ReceiveMessageAnswer(), "r").body
    message = ApiMessage("m", "h", "d", "", {"": ""})
    body = wire.answered(call, ReceiveMessageAnswer([message]), "r").body
    assert b"<Body/><Attribute><Name/><Value/></Attribute></Message>" in body
    assert b"<Message/><Detail/>" in wire.refused(Protocol.QUERY, errors.over_limit(""), "r").body


# --- in JSON ---


@pytest.mark.parametrize(
    ("accept", "protocol"),
    [
        ("application/json", Protocol.QUERY_JSON),
        ("Application/JSON;q=0.9, text/plain, */*", Protocol.QUERY_JSON),
        ("application/x-amz-json-1.0", Protocol.QUERY_JSON),
        ("text/xml, application/json", Protocol.QUERY),
        ("*/*", Protocol.QUERY),
        ("text/html", Protocol.QUERY),
    ],
)
def test_a_form_is_answered_in_json_if_accepted(accept: str, protocol: Protocol) -> None:
    request = Request("POST", b"/", {b"accept": accept.encode()}, b"Action=ListQueues", "")
    assert wire.protocol_of(request) is wire.parse(request).protocol is protocol
    speaks_json = request._replace(headers={**request.headers, b"x-amz-target": b"AmazonSQS.ListQueues"}, body=b"{}")
    assert wire.protocol_of(speaks_json) is Protocol.JSON


def in_json(action: str, answer: Any) -> Any:
    response = wire.answered(ApiCall(Protocol.QUERY_JSON, action, answer), answer, "r")
    assert (response.status, response.content_type) == (200, "application/json")
    document = json.loads(response.body)
    assert document[f"{action}Response"].pop("ResponseMetadata") == {"RequestId": "r"}
    return document


def test_json_responses_to_forms_have_the_structure_of_the_xml_ones() -> None:
    value = MessageAttributeValue("Binary", binary_value=b"\0\1")
    message = ApiMessage("m", "h", "d", "<a>", {"SenderId": "s"}, None, {"k": value})
    attribute = {"DataType": "Binary", "StringValue": None, "BinaryValue": "AAE="}
    attribute |= {"StringListValues": None, "BinaryListValues": None}
    assert in_json("ReceiveMessage", ReceiveMessageAnswer([message])) == {
        "ReceiveMessageResponse": {
            "ReceiveMessageResult": {
                "messages": [
                    {
                        "MessageId": "m",
                        "ReceiptHandle": "h",
                        "MD5OfBody": "d",
                        "Body": "<a>",
                        "Attributes": [{"Name": "SenderId", "Value": "s"}],
                        "MD5OfMessageAttributes": None,
                        "MessageAttributes": [{"Name": "k", "Value": attribute}],
                    }
                ]
            }
        }
    }
    assert in_json("ReceiveMessage", ReceiveMessageAnswer()) == {
        "ReceiveMessageResponse": {"ReceiveMessageResult": {"messages": None}}
    }
    assert in_json("DeleteMessage", Empty()) == {"DeleteMessageResponse": {}}
    assert in_json("ListQueueTags", ListQueueTagsAnswer({"a": "b"})) == {
        "ListQueueTagsResponse": {"ListQueueTagsResult": {"Tags": [{"Key": "a", "Value": "b"}]}}
    }


def test_an_error_to_a_form_in_json() -> None:
    response = wire.refused(Protocol.QUERY_JSON, errors.queue_does_not_exist(), "r")
    assert (response.status, response.content_type) == (400, "application/json")
    assert json.loads(response.body) == {
        "Error": {
            "Type": "Sender",
            "Code": "AWS.SimpleQueueService.NonExistentQueue",
            "Message": "The specified queue does not exist for this wsdl version.",
        },
        "RequestId": "r",
    }
    odd = wire.refused(Protocol.QUERY_JSON, errors.invalid_parameter_value("\ud800"), "r")
    assert json.loads(odd.body)["Error"]["Message"] == "?"


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_every_response_to_a_form_encodes_as_json(action: str) -> None:
    kind = ACTIONS[action].answer
    info: Any = msgspec.inspect.type_info(kind)
    required = {field.encode_name: _some(field.type) for field in info.fields if field.required}
    document = in_json(action, msgspec.convert(required, kind))
    assert {*document[f"{action}Response"]} <= {f"{action}Result"}


def _some(kind: Any) -> Any:
    return {msgspec.inspect.StrType: "x", msgspec.inspect.IntType: 1}.get(type(kind), [])
