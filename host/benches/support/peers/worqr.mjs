// The commands of npm worqr 1.2.3, sent with ioredis: node worqr.mjs PORT QUEUE LOOPS
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { handle } from './order.mjs';

const [port, queue, loops] = process.argv.slice(2);
const redis = new Redis(Number(port), '127.0.0.1');
const events = new Redis(Number(port), '127.0.0.1');
const worker = randomUUID();
const timer = `worqr:workerTimers:${worker}`;
const working = `worqr:workingProcesses:${queue}`;
let running = 0;
let stopped = false;

const dequeue = async () => {
  const process = `worqr:processes:${queue}_${randomUUID()}`;
  await redis.sismember(`worqr:workingQueues:${worker}`, queue);
  const [[, task]] = await redis
    .multi()
    .rpoplpush(`worqr:queues:${queue}`, process)
    .sadd(working, process)
    .exec();
  if (task !== null) return { process, task };
  await redis.multi().del(process).srem(working, process).exec();
};

const finish = async (process) => {
  const [task] = await redis.lrange(process, 0, -1);
  const lock = 'worqr:uniqueTasks:0123456789abcdef';
  await redis.multi().del(lock).del(process).srem(working, process).exec();
  await redis.publish(`worqr_${queue}_done`, JSON.stringify({ workerId: worker, task }));
};

const work = async () => {
  running += 1;
  for (let taken; !stopped && (taken = await dequeue()); ) {
    handle(taken.task);
    await finish(taken.process);
  }
  running -= 1;
  if (stopped && running === 0) leave();
};

const leave = () => {
  redis.disconnect();
  events.disconnect();
};

await redis.multi().sadd('worqr:workers', worker).sadd('worqr:expiringWorkers', worker).set(timer, 'RUN', 'EX', 3).exec();
const beat = setInterval(() => redis.set(timer, 'RUN', 'EX', 3, 'XX'), 1000);
await redis.sadd(`worqr:workingQueues:${worker}`, queue);
events.on('message', (_, count) => {
  for (let more = Math.min(Number(count), Number(loops) - running); more > 0; more -= 1) work();
});
await events.subscribe(`worqr_${queue}_work`, `worqr_${queue}_done`, `worqr_${queue}_cancel`, `worqr_${queue}_delete`);
await redis.publish(`worqr_${queue}_work`, await redis.llen(`worqr:queues:${queue}`));
process.on('SIGTERM', () => {
  stopped = true;
  clearInterval(beat);
  if (running === 0) leave();
});
