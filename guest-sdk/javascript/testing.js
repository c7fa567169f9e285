// Tests of handlers in Node.js, without WebAssembly: `fakeHost` stands for the dispatcher, and `run`
// calls a handler as the dispatcher would.

import { Request, Response, fetch } from "./fetch.js";
import { provide } from "./host.js";
import { Message, failureOf } from "./index.js";

const levels = ["trace", "debug", "info", "warn", "error"];

/** Stands for the dispatcher until the next one; what handlers ask of it is kept. */
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
      async send(raw) {
        if (!http) denied(`no HTTP is granted: fakeHost({ http: (request) => new Response() })`);
        const { method, url, headers, body } = raw;
        const request = new Request(url, { method, headers, ...(body.length > 0 && { body }) });
        told.requests.push(request.clone());
        const response = await http(request);
        const bytes = new Uint8Array(await response.arrayBuffer());
        return { status: response.status, headers: [...response.headers], body: bytes };
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

const bucketOf = (values) => ({
  get: (key) => values.get(key) ?? null,
  set: (key, value) => void values.set(key, value),
  delete: (key) => void values.delete(key),
  exists: (key) => values.has(key),
  listKeys: () => ({ keys: [...values.keys()], cursor: null }),
});

/** A message for a test, from `local:default`; what is no text or bytes is JSON. */
export function message(body, more = {}) {
  const isPlain = typeof body === "string" || body instanceof Uint8Array;
  const { attributes = {}, systemAttributes = {}, ...rest } = more;
  const value = (val) => ({ tag: typeof val === "string" ? "text" : "binary", val });
  return new Message({
    id: "a-message",
    queue: "local:default",
    body: isPlain ? body : JSON.stringify(body),
    source: "local:default",
    receipt: "a-receipt",
    receiveCount: 1,
    attempt: 1,
    idempotencyKey: "0123456789abcdef0123456789abcdef",
    trace: null,
    deadline: Date.now() + 30_000,
    sentAt: null,
    firstReceivedAt: null,
    group: null,
    bodyMd5: null,
    attributesMd5: null,
    systemAttributes: Object.entries(systemAttributes),
    attributes: Object.entries(attributes).map(([name, val]) => ({ name, value: value(val) })),
    ...rest,
  });
}

/** Runs a handler on a message: what became of it, `{ done: true }` or what the dispatcher is told. */
export async function run(handler, one) {
  try {
    const answer = await handler.handle(one instanceof Message ? one : message(one));
    if (answer !== undefined) throw new TypeError(`the handler returned ${JSON.stringify(answer)}; wanted nothing`);
    return { done: true };
  } catch (thrown) {
    const failure = failureOf(thrown);
    if (failure === undefined) throw thrown;
    const { tag, val } = failure;
    if (tag === "reject" || tag === "closed") return { [tag]: val };
    return { [tag]: { afterMs: val.after, reason: val.reason } };
  }
}

export { Response };
