// npm sqs-consumer as its README has it: node consumer.mjs ENDPOINT QUEUE singly|batch CONSUMERS WAIT_S MODULE
import { SQSClient } from '@aws-sdk/client-sqs';
import { Consumer } from 'sqs-consumer';

const [endpoint, queue, mode, count, wait, module] = process.argv.slice(2);
const { handle } = await import(module);
const handlers =
  mode === 'batch'
    ? { handleMessageBatch: async (messages) => (messages.forEach((one) => handle(one.Body)), messages) }
    : { handleMessage: async (message) => (handle(message.Body), message) };
const consumers = Array.from({ length: Number(count) }, () =>
  Consumer.create({
    queueUrl: `${endpoint}/000000000000/${queue}`,
    sqs: new SQSClient({ endpoint }),
    batchSize: 10,
    waitTimeSeconds: Number(wait),
    ...handlers,
  }),
);
const fail = (error) => {
  console.error(error);
  process.exit(1);
};
for (const consumer of consumers) {
  consumer.on('error', fail);
  consumer.on('processing_error', fail);
  consumer.start();
}
// The process ends when the outstanding receives have ended.
process.on('SIGTERM', () => consumers.forEach((consumer) => consumer.stop()));
