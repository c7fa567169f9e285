// Asks the SQS server at $ENDPOINT for what applications ask for, through version 3 of the SDK for
// JavaScript, which checks every digest by itself.
import assert from "node:assert/strict";
import * as sdk from "@aws-sdk/client-sqs";

const sqs = new sdk.SQSClient({ endpoint: process.env.ENDPOINT, region: "us-east-1" });
const call = (name, input) => sqs.send(new sdk[`${name}Command`](input));
const fails = async (name, kind, input) => {
  try {
    await call(name, input);
  } catch (error) {
    assert.equal(error.name, kind, `${name}: ${error}`);
    return error;
  }
  assert.fail(`${name} was to fail with ${kind}`);
};

const { QueueUrl } = await call("CreateQueue", {
  QueueName: "js",
  Attributes: { VisibilityTimeout: "60" },
  tags: { team: "a" },
});
assert.equal((await call("GetQueueUrl", { QueueName: "js" })).QueueUrl, QueueUrl);
assert.deepEqual((await call("ListQueueTags", { QueueUrl })).Tags, { team: "a" });
const gone = await fails("GetQueueUrl", "QueueDoesNotExist", { QueueName: "none" });
assert.ok(gone instanceof sdk.QueueDoesNotExist);
assert.deepEqual((await call("ListQueues", {})).QueueUrls, [QueueUrl]);

const MessageAttributes = {
  text: { DataType: "String", StringValue: "é" },
  bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
};
const MessageBody = "€ <&> 𝄞\r\n";
await call("SendMessage", { QueueUrl, MessageBody, MessageAttributes });
const asked = {
  QueueUrl,
  MaxNumberOfMessages: 10,
  MessageAttributeNames: ["All"],
  MessageSystemAttributeNames: ["All"],
};
const [message] = (await call("ReceiveMessage", asked)).Messages;
assert.equal(message.Body, MessageBody);
assert.deepEqual(message.MessageAttributes.text, MessageAttributes.text);
assert.deepEqual([...message.MessageAttributes.bytes.BinaryValue], [0, 255]);
assert.equal(message.Attributes.ApproximateReceiveCount, "1");
assert.equal((await call("ReceiveMessage", asked)).Messages, undefined);
await call("DeleteMessage", { QueueUrl, ReceiptHandle: message.ReceiptHandle });

const Entries = [
  { Id: "good", MessageBody: "1" },
  { Id: "bad", MessageBody: "\uffff" },
];
const batch = await call("SendMessageBatch", { QueueUrl, Entries });
assert.deepEqual(batch.Successful.map((one) => one.Id), ["good"]);
assert.deepEqual(batch.Failed.map((one) => one.Code), ["InvalidMessageContents"]);
await fails("SendMessageBatch", "EmptyBatchRequest", { QueueUrl, Entries: [] });
const [first] = (await call("ReceiveMessage", asked)).Messages;
const { ReceiptHandle } = first;
await call("ChangeMessageVisibility", { QueueUrl, ReceiptHandle, VisibilityTimeout: 0 });
const [again] = (await call("ReceiveMessage", asked)).Messages;
const done = [{ Id: "a", ReceiptHandle: again.ReceiptHandle }, { Id: "b", ReceiptHandle: "x" }];
const deleted = await call("DeleteMessageBatch", { QueueUrl, Entries: done });
assert.deepEqual(deleted.Successful.map((one) => one.Id), ["a"]);
assert.deepEqual(deleted.Failed.map((one) => one.Code), ["ReceiptHandleIsInvalid"]);
await fails("DeleteMessage", "ReceiptHandleIsInvalid", { QueueUrl, ReceiptHandle: "x" });

const waiting = call("ReceiveMessage", { QueueUrl, WaitTimeSeconds: 20 });
await call("SendMessage", { QueueUrl, MessageBody: "wake" });
assert.equal((await waiting).Messages[0].Body, "wake");

const ordered = await call("CreateQueue", {
  QueueName: "js.fifo",
  Attributes: { FifoQueue: "true", ContentBasedDeduplication: "true" },
});
const send = { QueueUrl: ordered.QueueUrl, MessageBody: "once", MessageGroupId: "g" };
const once = await call("SendMessage", send);
assert.equal((await call("SendMessage", send)).MessageId, once.MessageId);
assert.equal((await call("ReceiveMessage", { ...asked, QueueUrl: ordered.QueueUrl })).Messages.length, 1);
await call("DeleteQueue", { QueueUrl: ordered.QueueUrl });
console.log("all is well");
