// Tests of an application that uses SQS: node --test
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { CreateQueueCommand, ListQueuesCommand, ReceiveMessageCommand, SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";
import { startQueue } from "./queue.mjs";

let queue, sqs;
before(async () => {
  queue = await startQueue();
  sqs = new SQSClient({});
});
beforeEach(() => queue.reset());
after(() => {
  sqs.destroy();
  queue.stop();
});

test("an order is received once", async () => {
  const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "orders" }));
  await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: "order 1" }));
  const first = await sqs.send(new ReceiveMessageCommand({ QueueUrl }));
  assert.deepEqual(first.Messages.map((message) => message.Body), ["order 1"]);
  const second = await sqs.send(new ReceiveMessageCommand({ QueueUrl }));
  assert.equal(second.Messages, undefined);
});

test("each test begins without queues", async () => {
  const { QueueUrls } = await sqs.send(new ListQueuesCommand({}));
  assert.equal(QueueUrls, undefined);
});
