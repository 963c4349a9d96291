// The AWS SDK for JavaScript against the endpoint. SQS_SDK names the package: that of today speaks JSON, that of before
// the Query protocol; both verify the MD5 of what they send and receive.

import assert from "node:assert/strict";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

const sdk = await import(process.env.SQS_SDK);
const isQuery = process.env.SQS_SDK === "client-sqs-query";
const isSigned = process.env.SQS_SIGNED === "yes";
const url = process.env.SQS_URL;
const arns = "arn:aws:sqs:us-east-1:000000000000:";
const prefix = process.env.SQS_PREFIX;
const KINDS = {
  text: { DataType: "String", StringValue: "grüß <&> 😀" },
  number: { DataType: "Number", StringValue: "-12.50" },
  bytes: { DataType: "Binary", BinaryValue: Uint8Array.from({ length: 256 }, (_, at) => at) },
  own: { DataType: "String.currency", StringValue: "EUR" },
};

function client(more = {}) {
  return new sdk.SQSClient({ endpoint: url, maxAttempts: 1, ...more });
}

const sqs = client();
const ask = (action, parameters, by = sqs) => by.send(new sdk[`${action}Command`](parameters));
const nameOf = (queue) => queue.split("/").pop();

async function made(name, attributes = {}) {
  const all = name.endsWith(".fifo") ? { FifoQueue: "true", ...attributes } : attributes;
  return (await ask("CreateQueue", { QueueName: `${prefix}-${name}`, Attributes: all })).QueueUrl;
}

async function received(queue, more = {}, by = sqs) {
  const parameters = { QueueUrl: queue, MaxNumberOfMessages: 10, AttributeNames: ["All"], ...more };
  return (await ask("ReceiveMessage", parameters, by)).Messages ?? [];
}

const bodies = async (queue, more) => (await received(queue, more)).map((each) => each.Body);

test("a message there and back", async () => {
  const queue = await made("there");
  const body = 'a body with "quotes", <tags> & lines\nand more: äöü 🚀';
  const trace = { AWSTraceHeader: { DataType: "String", StringValue: "Root=1-5759e988-bd862e3fe1be46a994272793" } };
  const parameters = { QueueUrl: queue, MessageBody: body, MessageAttributes: KINDS, MessageSystemAttributes: trace };
  const sent = await ask("SendMessage", parameters);
  const [message] = await received(queue, { MessageAttributeNames: ["All"] });
  assert.equal(message.Body, body);
  assert.equal(message.MessageId, sent.MessageId);
  assert.equal(message.MD5OfMessageAttributes, sent.MD5OfMessageAttributes);
  assert.equal(message.Attributes.AWSTraceHeader, trace.AWSTraceHeader.StringValue);
  assert.equal(message.Attributes.ApproximateReceiveCount, "1");
  assert.deepEqual(Object.keys(message.MessageAttributes).sort(), Object.keys(KINDS).sort());
  for (const [name, { DataType, StringValue, BinaryValue }] of Object.entries(KINDS)) {
    const got = message.MessageAttributes[name];
    assert.deepEqual([got.DataType, got.StringValue], [DataType, StringValue]);
    assert.deepEqual(got.BinaryValue && [...got.BinaryValue], BinaryValue && [...BinaryValue]);
  }
  await ask("DeleteMessage", { QueueUrl: queue, ReceiptHandle: message.ReceiptHandle });
  const { Attributes } = await ask("GetQueueAttributes", { QueueUrl: queue, AttributeNames: ["All"] });
  assert.equal(Attributes.ApproximateNumberOfMessages, "0");
  assert.equal(Attributes.ApproximateNumberOfMessagesNotVisible, "0");
});

test("visibility, and batches of which a part fails", async () => {
  const queue = await made("batch");
  const sent = await ask("SendMessageBatch", {
    QueueUrl: queue,
    Entries: [
      { Id: "late", MessageBody: "x", DelaySeconds: 901 },
      { Id: "good", MessageBody: "y", MessageAttributes: KINDS },
    ],
  });
  const ids = (answer) => [answer.Successful.map((each) => each.Id), answer.Failed.map((each) => [each.Id, each.Code])];
  assert.deepEqual(ids(sent), [["good"], [["late", "InvalidParameterValue"]]]);
  assert.equal(sent.Failed[0].SenderFault, true);
  const [message] = await received(queue);
  assert.deepEqual(await received(queue), []);
  const entries = (handle, more) => [
    { Id: "there", ReceiptHandle: handle, ...more },
    { Id: "not", ReceiptHandle: "nonsense", ...more },
  ];
  const partly = [["there"], [["not", "ReceiptHandleIsInvalid"]]];
  const shown = { QueueUrl: queue, Entries: entries(message.ReceiptHandle, { VisibilityTimeout: 0 }) };
  assert.deepEqual(ids(await ask("ChangeMessageVisibilityBatch", shown)), partly);
  const [again] = await received(queue);
  await ask("ChangeMessageVisibility", { QueueUrl: queue, ReceiptHandle: again.ReceiptHandle, VisibilityTimeout: 0 });
  const [last] = await received(queue);
  assert.equal(last.Attributes.ApproximateReceiveCount, "3");
  const gone = { QueueUrl: queue, Entries: entries(last.ReceiptHandle) };
  assert.deepEqual(ids(await ask("DeleteMessageBatch", gone)), partly);
});

test("a duplicate is answered as the first was", async () => {
  const queue = await made("twice.fifo", { ContentBasedDeduplication: "true" });
  const send = async (body, more = {}) => {
    const answer = await ask("SendMessage", { QueueUrl: queue, MessageBody: body, MessageGroupId: "g", ...more });
    return [answer.MessageId, answer.SequenceNumber];
  };
  const first = await send("x");
  assert.deepEqual(await send("x"), first);
  assert.deepEqual(
    await send("y", { MessageDeduplicationId: "1" }),
    await send("z", { MessageDeduplicationId: "1" }),
  );
  assert.deepEqual(await bodies(queue), ["x", "y"]);
});

test("groups keep their order with many consumers", async () => {
  const queue = await made("order.fifo");
  const [groups, length, consumers] = [4, 10, 4];
  for (let number = 0; number < length; number++) {
    const Entries = Array.from({ length: groups }, (_, group) => ({
      Id: `${group}`,
      MessageBody: `${number}`,
      MessageGroupId: `g${group}`,
      MessageDeduplicationId: `${group}-${number}`,
    }));
    assert.equal((await ask("SendMessageBatch", { QueueUrl: queue, Entries })).Successful.length, groups);
  }
  const done = {};
  let left = groups * length;
  const consume = async () => {
    const by = client();
    while (left > 0) {
      const stopped = new Set();
      for (const message of await received(queue, { MaxNumberOfMessages: 3, WaitTimeSeconds: 1 }, by)) {
        const { MessageGroupId: group, ApproximateReceiveCount: count } = message.Attributes;
        const handle = { QueueUrl: queue, ReceiptHandle: message.ReceiptHandle };
        if (stopped.has(group) || (Number(message.Body) % 5 === 2 && count === "1")) {
          stopped.add(group); // back with it, and with those behind it, in its place
          await ask("ChangeMessageVisibility", { ...handle, VisibilityTimeout: 0 }, by);
        } else {
          (done[group] ??= []).push(Number(message.Body));
          left -= 1;
          await sleep(Math.random() * 3);
          await ask("DeleteMessage", handle, by);
        }
      }
    }
    by.destroy();
  };
  await Promise.all(Array.from({ length: consumers }, consume));
  const inOrder = Array.from({ length }, (_, number) => number);
  assert.deepEqual(done, Object.fromEntries(Array.from({ length: groups }, (_, group) => [`g${group}`, inOrder])));
});

test("who waits has what comes", async () => {
  const queue = await made("waited");
  const waiting = received(queue, { WaitTimeSeconds: 20 }, client());
  await sleep(300); // one that does not wait would be answered now
  await ask("SendMessage", { QueueUrl: queue, MessageBody: "at last" });
  assert.deepEqual((await waiting).map((each) => each.Body), ["at last"]);
});

test("a poll that is given up takes nothing", async () => {
  const queue = await made("given-up", { VisibilityTimeout: "600" });
  const given = new AbortController();
  const poll = new sdk.ReceiveMessageCommand({ QueueUrl: queue, WaitTimeSeconds: 20 });
  const waiting = client().send(poll, { abortSignal: given.signal });
  await sleep(300);
  given.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  await sleep(100);
  await ask("SendMessage", { QueueUrl: queue, MessageBody: "x" });
  assert.deepEqual(await bodies(queue, { WaitTimeSeconds: 5 }), ["x"]);
});

test("queues", async () => {
  const attributes = { VisibilityTimeout: "45", DelaySeconds: "1", MessageRetentionPeriod: "3600" };
  const names = ["a", "b", "c"].map((each) => `${prefix}-list-${each}`);
  for (const QueueName of names) {
    await ask("CreateQueue", { QueueName, Attributes: attributes, tags: { team: "shop", "a b": "ä=&" } });
  }
  const sizes = [];
  const urls = [];
  const pages = sdk.paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix: `${prefix}-list` });
  for await (const page of pages) {
    sizes.push(page.QueueUrls.length);
    urls.push(...page.QueueUrls);
  }
  assert.deepEqual(sizes, [2, 1]);
  assert.deepEqual(urls.map(nameOf).sort(), names);
  const QueueUrl = (await ask("GetQueueUrl", { QueueName: names[0] })).QueueUrl;
  await ask("SetQueueAttributes", { QueueUrl, Attributes: { VisibilityTimeout: "50" } });
  const { Attributes } = await ask("GetQueueAttributes", { QueueUrl, AttributeNames: ["All"] });
  assert.equal(Attributes.VisibilityTimeout, "50");
  assert.equal(Attributes.MessageRetentionPeriod, "3600");
  assert.equal(Attributes.QueueArn, arns + names[0]);
  await ask("TagQueue", { QueueUrl, Tags: { stage: "test" } });
  await ask("UntagQueue", { QueueUrl, TagKeys: ["team"] });
  assert.deepEqual((await ask("ListQueueTags", { QueueUrl })).Tags, { "a b": "ä=&", stage: "test" });
  await ask("PurgeQueue", { QueueUrl });
  await ask("DeleteQueue", { QueueUrl });
});

test("dead letters and their way back", async () => {
  const dead = await made("dead");
  const SourceArn = arns + nameOf(dead);
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: SourceArn, maxReceiveCount: 1 });
  const source = await made("source", { RedrivePolicy, VisibilityTimeout: "0" });
  assert.deepEqual((await ask("ListDeadLetterSourceQueues", { QueueUrl: dead })).queueUrls, [source]);
  await ask("SendMessage", { QueueUrl: source, MessageBody: "x" });
  assert.deepEqual([await bodies(source), await bodies(source)], [["x"], []]);
  assert.ok((await ask("StartMessageMoveTask", { SourceArn })).TaskHandle);
  let task;
  do {
    [task] = (await ask("ListMessageMoveTasks", { SourceArn })).Results;
    await sleep(20);
  } while (task.Status === "RUNNING");
  assert.deepEqual([task.Status, task.ApproximateNumberOfMessagesMoved], ["COMPLETED", 1]);
  assert.deepEqual(await bodies(source), ["x"]);
});

test("errors have their names", async () => {
  const queue = await made("errors.fifo");
  const nowhere = { QueueUrl: `${queue}-nowhere` };
  const one = { Id: "a", MessageBody: "x", MessageGroupId: "g", MessageDeduplicationId: "1" };
  const cases = [
    ["GetQueueUrl", { QueueName: nameOf(nowhere.QueueUrl) }, "QueueDoesNotExist"],
    ["DeleteMessage", { QueueUrl: queue, ReceiptHandle: "x" }, "ReceiptHandleIsInvalid"],
    ["SendMessageBatch", { QueueUrl: queue, Entries: [one, one] }, "BatchEntryIdsNotDistinct"],
    ["SetQueueAttributes", { QueueUrl: queue, Attributes: { Colour: "red" } }, "InvalidAttributeName"],
    ["StartMessageMoveTask", { SourceArn: `${arns}nowhere` }, "ResourceNotFoundException"],
    ["SendMessage", { QueueUrl: queue, MessageBody: "x" }, null],
  ];
  for (const [action, parameters, kind] of cases) {
    await assert.rejects(ask(action, parameters), (error) => {
      assert.equal(error.$fault, "client");
      assert.ok(error instanceof sdk.SQSServiceException);
      assert.ok(error.message);
      assert.ok(error.$metadata.httpStatusCode >= 400 && error.$metadata.httpStatusCode < 500);
      if (kind === null) {
        assert.equal(error.name, "MissingParameter");
      } else {
        assert.equal(error.name, kind);
        assert.ok(error instanceof sdk[kind], `${error.name} is no ${kind}`);
      }
      return true;
    });
  }
  const code = "AWS.SimpleQueueService.NonExistentQueue";
  await assert.rejects(ask("ReceiveMessage", nowhere), (error) => {
    assert.deepEqual([error.name, error.Code], [isQuery ? code : "QueueDoesNotExist", code]);
    return true;
  });
});

test("keys", async () => {
  const parameters = { QueueUrl: await made("keys"), MessageBody: "x" };
  const wrong = [
    [{ accessKeyId: process.env.AWS_ACCESS_KEY_ID, secretAccessKey: "guessed" }, "SignatureDoesNotMatch"],
    [{ accessKeyId: "AKIDNOBODY0000000001", secretAccessKey: "guessed" }, "InvalidClientTokenId"],
  ];
  for (const [credentials, name] of wrong) {
    const sending = ask("SendMessage", parameters, client({ credentials }));
    if (isSigned) {
      await assert.rejects(sending, (error) => {
        assert.deepEqual([error.name, error.$metadata.httpStatusCode], [name, 403]);
        return true;
      });
    } else {
      assert.ok((await sending).MessageId);
    }
  }
});

test("it may be reached by another name than its queues have", async () => {
  const byName = client({ endpoint: url.replace("127.0.0.1", "localhost") });
  const queue = await made("name");
  assert.ok(queue.startsWith(url));
  await ask("SendMessage", { QueueUrl: queue, MessageBody: "x" }, byName);
  await ask("SendMessage", { QueueUrl: queue.replace("127.0.0.1", "localhost"), MessageBody: "y" });
  assert.deepEqual((await bodies(queue)).sort(), ["x", "y"]);
});

test("the same name in two regions is two queues", async () => {
  const far = client({ region: "eu-west-1" });
  const by = [sqs, far];
  const queues = [];
  for (const each of by) {
    const { QueueUrl } = await ask("CreateQueue", { QueueName: `${prefix}-regions` }, each);
    await ask("SendMessage", { QueueUrl, MessageBody: QueueUrl }, each);
    queues.push(QueueUrl);
  }
  assert.ok(queues[1].includes("/queue/eu-west-1/"));
  for (const [at, each] of by.entries()) {
    const there = await received(queues[at], { VisibilityTimeout: 0 }, each);
    assert.deepEqual(there.map((message) => message.Body), [queues[at]]);
    const listed = await ask("ListQueues", { QueueNamePrefix: `${prefix}-regions` }, each);
    assert.deepEqual(listed.QueueUrls, [queues[at]]);
    const other = { QueueUrl: queues[1 - at], MessageBody: "x" };
    await assert.rejects(ask("SendMessage", other, each), { name: /QueueDoesNotExist|NonExistentQueue/ });
  }
});

test("the settings of the environment", { skip: isQuery && "that SDK had none for the endpoint" }, async () => {
  process.env.AWS_ENDPOINT_URL = url.replace("127.0.0.1", "localhost");
  const warned = [];
  const logger = { warn: (text) => warned.push(text), info() {}, debug() {}, error() {} };
  const plain = new sdk.SQSClient({ logger });
  const queue = await made("environment");
  assert.ok((await ask("SendMessage", { QueueUrl: queue, MessageBody: "x" }, plain)).MessageId);
  assert.match(warned[0], /using QueueUrl host as endpoint/); // so it must be one that the client can reach
  const far = new sdk.SQSClient({ logger, region: "eu-west-1" });
  const { QueueUrl } = await ask("CreateQueue", { QueueName: `${prefix}-environment` }, far);
  assert.notEqual(QueueUrl, queue);
  await ask("SendMessage", { QueueUrl, MessageBody: "far" }, far);
  assert.deepEqual((await received(QueueUrl, {}, far)).map((each) => each.Body), ["far"]);
});
