// npm sqs-consumer as its README has it: node consumer.mjs ENDPOINT QUEUE singly|batch CONSUMERS
import { SQSClient } from '@aws-sdk/client-sqs';
import { Consumer } from 'sqs-consumer';

const [endpoint, queue, mode, count] = process.argv.slice(2);
const handle = (message) => {
  const order = JSON.parse(message.Body);
  if (typeof order.id !== 'string') throw new Error('`id`: wanted a string');
};
for (let n = 0; n < Number(count); n += 1) {
  const handlers =
    mode === 'batch'
      ? { handleMessageBatch: async (messages) => (messages.forEach(handle), messages) }
      : { handleMessage: async (message) => (handle(message), message) };
  const consumer = Consumer.create({
    queueUrl: `${endpoint}/000000000000/${queue}`,
    sqs: new SQSClient({ endpoint }),
    batchSize: 10,
    waitTimeSeconds: 1,
    ...handlers,
  });
  const fail = (error) => {
    console.error(error);
    process.exit(1);
  };
  consumer.on('error', fail);
  consumer.on('processing_error', fail);
  consumer.start();
}
