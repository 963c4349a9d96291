"""What the fuzzer begins with, by target and name; an input that found something is kept here with what it found."""

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
AUTHORIZATION = (
    b"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20231114/us-east-1/sqs/aws4_request, "
    b"SignedHeaders=host;x-amz-date, Signature=" + b"0" * 64
)
PRESIGNED = (
    b"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20231114%2Fus-east-1%2Fsqs%2Faws4_request"
    b"&X-Amz-Date=20231114T221320Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=" + b"0" * 64
)

SEEDS: dict[str, dict[str, bytes]] = {
    "http": {
        "nothing": b"",
        "two requests": b"\x00GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n" + HEAD + b"Content-Length: 3\r\n\r\nabc",
        "chunks with a trailer": b"\x02"
        + HEAD
        + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
        "an upgrade": b"\x01" + HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        "to be told to go on": b"\x03" + HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.0": b"\x04GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        "two lengths": b"\x05" + HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "a folded header": b"\x06" + HEAD + b"X: a\r\n b\r\n\r\n",
    },
    "query": {
        "nothing": b"",
        "a send": b"Action=SendMessage&Version=2012-11-05\nMessageBody=a%0Ab&MessageAttribute.1.Name=n"
        b"&MessageAttribute.1.Value.DataType=String&MessageAttribute.1.Value.StringValue=v",
        "a batch": b"Action=SendMessageBatch\nSendMessageBatchRequestEntry.1.Id=1&SendMessageBatchRequestEntry.1"
        b".MessageBody=x&SendMessageBatchRequestEntry.2.Id=2",
        "attributes": b"Action=CreateQueue&QueueName=q\nAttribute.1.Name=DelaySeconds&Attribute.1.Value=5&Tag.1.Key=a"
        b"&Tag.1.Value=b&Tag.entry.2.key=c&Tag.entry.2.value=d",
        "members": b"Action=GetQueueAttributes\nAttributeNames.member.1=All&AttributeName.2=x&AttributeName=y",
    },
    "json": {
        "nothing": b"",
        "a send": b'SendMessage\n{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": {"a": {'
        b'"DataType": "Binary", "BinaryValue": "AAA="}}}',
        "nulls": b'ReceiveMessage\n{"QueueUrl": "q", "WaitTimeSeconds": null, "AttributeNames": ["All", null]}',
        "a batch": b'DeleteMessageBatch\n{"QueueUrl": "q", "Entries": [{"Id": "1"}, {"Id": "2"}]}',
        "deep": b"SendMessage\n" + b'{"a":' * 60 + b"1" + b"}" * 60,
        "another type": b'SendMessage\n{"QueueUrl": 5, "DelaySeconds": 1e400, "MessageBody": ["\\ud800"]}',
    },
    "signature": {
        "nothing": b"",
        "in the header": b"/000000000000/q\na=b&c=%20d+e\n" + AUTHORIZATION + b"\n20231114T221320Z\nhost\n{}",
        "in the query": b"/\nAction=ListQueues&" + PRESIGNED + b"\n\n\n\n",
        "another date": b"/..//a/./%2e%2F~\n\n" + AUTHORIZATION + b"\n\nTue, 14 Nov 2023 22:13:20 GMT\n",
    },
    "mapping": {
        "nothing": b"",
        "a message": b'{"a":"acct-1"}\n7\ntx-1\n{"a":"acct-1","r":7,"i":"tx-1","b":{"amount":5}}',
        "numbers": b'{"a":7}\n-9223372036854775807\n{"a":1.5}\n{"a":1e400,"r":9223372036854775808,"i":-0.0,"b":null}',
        "escapes": b'{"a":"\\u0000"}\n\xb2\n\\ud800\n{"a":"\\ud800","r":"x","i":"","a":{"b.c":true}}',
        "a change": b'{"id":7}\n\n\n{"op":"u","before":null,"after":{"id":7,"a":"x"},"source":{'
        b'"connector":"postgresql","db":"d","schema":"s","table":"t","lsn":108,"sequence":"[\\"90\\",\\"108\\"]","txId":9}}',
        "a change of MySQL": b'{"schema":null,"payload":{"id":7}}\n\n\n{"schema":{},"payload":{"op":"d",'
        b'"before":{"id":7},"source":{"connector":"mysql","db":"d","table":"t","file":"mysql-bin.000003","pos":805,"row":0}}}',
    },
}
