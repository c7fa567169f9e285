// Loops that fetch ten jobs of pg-boss and complete each: node pgboss.mjs URL QUEUE LOOPS, or
// node pgboss.mjs URL for its tables. Its own workers pause for half a second after each fetch.
import PgBoss from 'pg-boss';
import { check } from './order.mjs';

const [connectionString, queue, loops] = process.argv.slice(2);
const boss = new PgBoss({ connectionString, max: 10 * Number(loops ?? 1) });
boss.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
await boss.start();
let stopped = false;
const loop = async () => {
  while (!stopped) {
    const jobs = await boss.fetch(queue, { batchSize: 10 });
    for (const job of jobs) check(job.data);
    await Promise.all(jobs.map((job) => boss.complete(queue, job.id)));
    if (jobs.length === 0) await new Promise((resolve) => setTimeout(resolve, 500));
  }
};
if (queue !== undefined) {
  process.on('SIGTERM', () => (stopped = true));
  await Promise.all(Array.from({ length: Number(loops) }, loop));
}
// Its timers and its pool would keep the process.
process.exit(0);
