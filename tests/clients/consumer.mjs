// sqs-consumer against the endpoint: as a program uses it that only says what to do with a message.

import assert from "node:assert/strict";
import { once } from "node:events";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const sqs = new SQSClient({ endpoint: process.env.SQS_URL, maxAttempts: 1 });
const prefix = process.env.SQS_PREFIX;
const QUEUE = { messageSystemAttributeNames: ["All"], messageAttributeNames: ["All"], waitTimeSeconds: 5 };

async function made(name, attributes = {}) {
  const Attributes = name.endsWith(".fifo") ? { FifoQueue: "true", ...attributes } : attributes;
  return (await sqs.send(new CreateQueueCommand({ QueueName: `${prefix}-${name}`, Attributes }))).QueueUrl;
}

async function left(QueueUrl) {
  const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
  return Number(Attributes.ApproximateNumberOfMessages) + Number(Attributes.ApproximateNumberOfMessagesNotVisible);
}

async function drained(queue) {
  while (await left(queue)) await sleep(20);
}

function consumer(queueUrl, options) {
  const made = Consumer.create({ queueUrl, sqs, suppressFifoWarning: true, ...QUEUE, ...options });
  made.errors = [];
  made.on("error", (error) => made.errors.push(error));
  made.on("processing_error", (error) => made.errors.push(error));
  return made;
}

test("groups keep their order with many consumers, though some messages fail at first", async () => {
  const queue = await made("orders.fifo");
  const [groups, length] = [3, 10];
  for (let number = 0; number < length; number++) {
    const Entries = Array.from({ length: groups }, (_, group) => ({
      Id: `${group}`,
      MessageBody: `${number}`,
      MessageGroupId: `g${group}`,
      MessageDeduplicationId: `${group}-${number}`,
      MessageAttributes: { number: { DataType: "Number", StringValue: `${number}` } },
    }));
    await sqs.send(new SendMessageBatchCommand({ QueueUrl: queue, Entries }));
  }
  const done = {};
  const handleMessage = async (message) => {
    const { MessageGroupId: group, ApproximateReceiveCount: count } = message.Attributes;
    if (Number(message.Body) % 4 === 1 && count === "1") throw new Error("not yet");
    (done[group] ??= []).push(Number(message.MessageAttributes.number.StringValue));
    await sleep(Math.random() * 3);
    return message;
  };
  const consumers = Array.from({ length: 3 }, () => consumer(queue, { handleMessage, terminateVisibilityTimeout: true }));
  for (const each of consumers) each.start();
  await drained(queue);
  for (const each of consumers) each.stop({ abort: true });
  const inOrder = Array.from({ length }, (_, number) => number);
  assert.deepEqual(done, Object.fromEntries(Array.from({ length: groups }, (_, group) => [`g${group}`, inOrder])));
  const failed = consumers.flatMap((each) => each.errors.filter((error) => /not yet/.test(error.message)));
  assert.equal(failed.length, groups * inOrder.filter((number) => number % 4 === 1).length);
});

test("of a batch only what was done is deleted", async () => {
  const queue = await made("batch", { VisibilityTimeout: "600" });
  const Entries = Array.from("abcdefg", (MessageBody) => ({ Id: MessageBody, MessageBody }));
  await sqs.send(new SendMessageBatchCommand({ QueueUrl: queue, Entries }));
  const seen = [];
  const handleMessageBatch = async (messages) => {
    seen.push(...messages.map((each) => each.Body));
    return messages.filter((each) => each.Body !== "c");
  };
  const taking = consumer(queue, { handleMessageBatch, batchSize: 10 });
  taking.start();
  while (seen.length < Entries.length || (await left(queue)) > 1) await sleep(20);
  taking.stop({ abort: true });
  assert.deepEqual(seen.sort(), [..."abcdefg"]);
  assert.equal(await left(queue), 1);
});

test("a heart that beats keeps a message", async () => {
  const queue = await made("slow");
  await sqs.send(new SendMessageCommand({ QueueUrl: queue, MessageBody: "x" }));
  let times = 0;
  const handleMessage = async (message) => {
    times += 1;
    await sleep(2500); // longer than a message is hidden, and not when the heart beats
    return message;
  };
  const consumers = Array.from({ length: 2 }, () => consumer(queue, { handleMessage, visibilityTimeout: 2, heartbeatInterval: 1 }));
  for (const each of consumers) each.start();
  await Promise.race(consumers.map((each) => once(each, "message_processed")));
  for (const each of consumers) each.stop({ abort: true });
  assert.equal(times, 1);
  assert.equal(await left(queue), 0);
});

test("a consumer is told what is wrong", async () => {
  const lost = consumer(`${process.env.SQS_URL}/000000000000/nowhere`, { handleMessage: async (message) => message });
  lost.start();
  const [error] = await once(lost, "error");
  lost.stop();
  assert.deepEqual([error.name, error.code, error.statusCode], ["SQSError", "QueueDoesNotExist", 400]);
});
