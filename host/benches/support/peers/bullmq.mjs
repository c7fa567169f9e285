// A worker of npm BullMQ: node bullmq.mjs PORT QUEUE CONCURRENCY [JOBS-A-SECOND]
import { Worker } from 'bullmq';
import { handle } from './order.mjs';

const [port, queue, concurrency, rate] = process.argv.slice(2);
const worker = new Worker(queue, async (job) => handle(job.data.order), {
  connection: { host: '127.0.0.1', port: Number(port) },
  concurrency: Number(concurrency),
  limiter: rate && { max: Number(rate), duration: 1000 },
  // Keeps no record of a finished job, as nobody else here does.
  removeOnComplete: { count: 0 },
});
const fail = (error) => {
  console.error(error);
  process.exit(1);
};
worker.on('error', fail);
worker.on('failed', (_, error) => fail(error));
process.on('SIGTERM', () => worker.close());
