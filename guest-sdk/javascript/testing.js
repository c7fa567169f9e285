// Runs handlers in tests with Node.js, without WebAssembly. `fakeHost` replaces the dispatcher, and
// `run` calls a handler and returns the outcome that the dispatcher would get.

import { attemptNow, outside, runAttempt } from "./attempt.js";
import { Body, Request, Response, fetch } from "./fetch.js";
import { provide } from "./host.js";
import { Message, failureOf } from "./index.js";

/** The maximum size of a response body in bytes, as in the host. */
const MOST_BODY = 4 * 1024 * 1024;
const levels = ["trace", "debug", "info", "warn", "error"];

/** Replaces the dispatcher until the next call. Returns a record of what handlers requested. */
export function fakeHost({ http, queues = [], stores = [], settings = {}, maxTimeoutMs = Infinity } = {}) {
  const told = { requests: [], sent: [], logged: [], counts: {}, gauges: {}, cancelled: new Set(), stores: {} };
  for (const name of stores) told.stores[name] = new Map();
  const denied = (val) => {
    throw { tag: "forbidden", val };
  };
  const measure = (values, change) => (name, labels, value) => {
    const key = [name, ...labels.map((pair) => pair.join("="))].join(" ");
    values[key] = change(values[key] ?? 0, value);
  };
  provide({
    http: {
      send(raw) {
        if (!http) denied(`no HTTP is granted: fakeHost({ http: (request) => new Response() })`);
        const { method, url, headers, body, timeout } = raw;
        const request = new Request(url, { method, headers, ...(body.length > 0 && { body }) });
        const ask = () => {
          told.requests.push(request.clone());
          const response = outside(() => http(request));
          return response instanceof Response ? answered(response, Body.of(response)) : answeredLater(response);
        };
        const attempt = attemptNow();
        return attempt === undefined ? ask() : attempt.call(ask, timeout);
      },
    },
    queues: {
      async send(queue, { body, attributes, delay, group, deduplicationId }) {
        if (!queues.includes(queue)) denied(`the queue ${queue} is not granted: fakeHost({ queues: ["${queue}"] })`);
        const own = Object.fromEntries(attributes.map(({ name, value }) => [name, value.val]));
        told.sent.push({ queue, body: body.val, attributes: own, delayMs: delay, group, deduplicationId });
        return `sent-${told.sent.length}`;
      },
    },
    log: {
      write({ level, text, fields }) {
        if (!levels.includes(level)) throw new TypeError(`log: the level ${level}`);
        told.logged.push({ level, text, fields: Object.fromEntries(fields) });
      },
    },
    metrics: {
      add: measure(told.counts, (sum, value) => sum + value),
      set: measure(told.gauges, (_, value) => value),
    },
    context: {
      cancelled: (id) => told.cancelled.has(id),
      extend: (_, ms) => Date.now() + Math.min(ms, maxTimeoutMs),
    },
    store: {
      open(name) {
        if (told.stores[name] === undefined) throw { tag: "access-denied" };
        return bucketOf(told.stores[name]);
      },
    },
    atomics: {
      increment(bucket, key, by) {
        const text = new TextDecoder().decode(bucket.get(key) ?? new Uint8Array());
        const sum = Number(text) + by;
        if (!Number.isSafeInteger(sum)) throw { tag: "other", val: `no number: ${text}` };
        bucket.set(key, new TextEncoder().encode(String(sum)));
        return sum;
      },
    },
    settings: { get: (name) => settings[name] ?? null },
  });
  globalThis.fetch = fetch;
  return told;
}

function answered(response, bytes = new Uint8Array()) {
  if (bytes.length > MOST_BODY) throw { tag: "too-large", val: MOST_BODY };
  return { status: response.status, headers: [...response.headers], body: bytes };
}

/** Like `answered`, for the promise of a response or a response of Node.js. */
async function answeredLater(promised) {
  const response = await promised;
  return answered(response, new Uint8Array(await response.arrayBuffer()));
}

const bucketOf = (values) => ({
  get: (key) => values.get(key) ?? null,
  set: (key, value) => void values.set(key, value),
  delete: (key) => void values.delete(key),
  exists: (key) => values.has(key),
  listKeys: () => ({ keys: [...values.keys()], cursor: null }),
});

/** The time limit of an attempt. */
const ATTEMPT_MS = 30_000;
/** The messages whose time limit starts when they are run. */
const undated = new WeakSet();

/** Creates a message for a test, from `local:default`. A body that is not text or bytes becomes
 * JSON. */
export function message(body, more = {}) {
  const isPlain = typeof body === "string" || body instanceof Uint8Array;
  const { attributes = {}, systemAttributes = {}, ...rest } = more;
  const value = (val) => ({ tag: typeof val === "string" ? "text" : "binary", val });
  const made = new Message({
    id: "a-message",
    queue: "local:default",
    body: isPlain ? body : JSON.stringify(body),
    source: "local:default",
    receipt: "a-receipt",
    receiveCount: 1,
    attempt: 1,
    idempotencyKey: "0123456789abcdef0123456789abcdef",
    trace: null,
    deadline: Date.now() + ATTEMPT_MS,
    sentAt: null,
    firstReceivedAt: null,
    group: null,
    bodyMd5: null,
    attributesMd5: null,
    systemAttributes: Object.entries(systemAttributes),
    attributes: Object.entries(attributes).map(([name, val]) => ({ name, value: value(val) })),
    ...rest,
  });
  if (rest.deadline === undefined) undated.add(made);
  return made;
}

/** Returns the message of an attempt that starts now. */
function messageOf(one, more) {
  const taken = one instanceof Message ? one : message(one, more);
  if (undated.has(taken)) taken.deadline = Date.now() + ATTEMPT_MS;
  return taken;
}

/** Converts a failure of the contract to an outcome. */
function outcomeOf({ tag, val }) {
  if (tag === "reject" || tag === "closed") return { [tag]: val };
  return { [tag]: { afterMs: val.after, reason: val.reason } };
}

/** Converts an exception to an outcome. Throws it again if it is not a failure. */
function outcomeOfThrown(thrown) {
  const failure = failureOf(thrown);
  if (failure !== undefined) return outcomeOf(failure);
  if (thrown instanceof Error) throw thrown;
  throw new TypeError(`the handler threw ${JSON.stringify(thrown)}; wanted an Error or a failure`, { cause: thrown });
}

/** Runs a handler on a message and returns the outcome: `{ done: true }` or a failure. Throws if
 * the attempt fails for another reason. */
export async function run(handler, one) {
  const taken = messageOf(one);
  let answer;
  try {
    answer = await runAttempt(taken, () => handler.handle(taken));
  } catch (thrown) {
    return outcomeOfThrown(thrown);
  }
  if (answer !== undefined) throw new TypeError(`the handler returned ${JSON.stringify(answer)}; wanted nothing`);
  return { done: true };
}

/** Runs a handler of batches and returns the outcome of each message, in order. */
export async function runBatch(handler, all) {
  const taken = all.map((one, index) => messageOf(one, { id: `message-${index + 1}` }));
  const shared = { get timeLeftMs() { return Math.min(...taken.map((one) => one.timeLeftMs)); } };
  let answer;
  try {
    answer = await runAttempt(shared, () => handler.handle(taken));
  } catch (thrown) {
    const outcome = outcomeOfThrown(thrown);
    return taken.map(() => outcome);
  }
  const isFailed = (one) => typeof one?.id === "string" && failureOf(one.failure) !== undefined;
  if (!Array.isArray(answer) || !answer.every(isFailed)) {
    throw new TypeError(
      `the handler of batches returned ${JSON.stringify(answer)}; wanted an array of the messages that failed, ` +
        "[{ id, failure }], empty when all are done",
    );
  }
  const unknown = answer.find((failed) => !taken.some(({ id }) => id === failed.id));
  if (unknown !== undefined) throw new TypeError(`the handler of batches returned an id of no message: ${unknown.id}`);
  const failed = new Map(answer.map(({ id, failure }) => [id, outcomeOf(failureOf(failure))]));
  return taken.map(({ id }) => failed.get(id) ?? { done: true });
}

export { Response };
