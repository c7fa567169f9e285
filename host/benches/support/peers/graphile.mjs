// A worker of graphile-worker with a local queue: node graphile.mjs URL TASK CONCURRENCY, or
// node graphile.mjs URL for its tables.
import worker from 'graphile-worker';
import { check } from './order.mjs';

const [connectionString, task, concurrency] = process.argv.slice(2);
const logger = new worker.Logger(() => (level, message) => {
  if (level === 'error') console.error(message);
});
if (task === undefined) {
  await worker.runMigrations({ connectionString, logger });
} else {
  const jobs = Number(concurrency);
  const runner = await worker.run({
    // Each job is completed by itself, which is its default.
    preset: {
      worker: { connectionString, logger, concurrentJobs: jobs, maxPoolSize: jobs + 2, localQueue: { size: 500 } },
    },
    taskList: { [task]: async (order) => check(order) },
    noHandleSignals: true,
  });
  process.on('SIGTERM', () => runner.stop());
}
