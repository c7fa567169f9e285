// What a handler works with: failures as exceptions, messages, sending, logging, metrics.

import { errorOf, need, track } from "./host.js";

export { StoreError, openStore, setting } from "./store.js";

/** A failure of the contract; to be thrown by a handler. */
class Failure extends Error {
  constructor(reason, options) {
    super(reason, options);
    this.name = new.target.name;
  }
}

const time = (ms, what) => {
  if (ms === undefined || ms === null) return null;
  if (Number.isFinite(ms) && ms >= 0) return Math.ceil(Math.min(ms, Number.MAX_SAFE_INTEGER));
  throw new TypeError(`${what}: wanted milliseconds, got ${String(ms)}`);
};

/** Never again: the message goes to the dead-letter queue with this reason. */
export class Reject extends Failure {
  constructor(reason, options) {
    super(String(reason), options);
  }

  toFailure() {
    return { tag: "reject", val: this.message };
  }
}

/** Again: after so many milliseconds, or by the route's policy. */
export class Retry extends Failure {
  constructor({ afterMs, reason, cause } = {}) {
    super(reason ?? "", cause === undefined ? undefined : { cause });
    this.afterMs = time(afterMs, "Retry: afterMs");
  }

  toFailure() {
    return { tag: "retry", val: { after: this.afterMs, reason: this.message || null } };
  }
}

/** Nothing was done, since something is busy: the dispatcher keeps the lease and tries again. */
export class Busy extends Failure {
  constructor(reason, { afterMs } = {}) {
    super(String(reason));
    this.afterMs = time(afterMs, "Busy: afterMs");
  }

  toFailure() {
    return { tag: "busy", val: { after: this.afterMs, reason: this.message } };
  }
}

/** Nothing was done, and no message will fare better until somebody acts. */
export class Closed extends Failure {
  constructor(reason) {
    super(String(reason));
  }

  toFailure() {
    return { tag: "closed", val: this.message };
  }
}

/** The failure of the contract that a thrown value is; undefined if it is another exception. */
export function failureOf(thrown) {
  return thrown instanceof Failure ? thrown.toFailure() : undefined;
}

const value = ({ tag, val }) => (tag === "binary" || tag === "bytes" || tag === "text" ? val : undefined);

/** One delivery of one message. */
export class Message {
  constructor(raw) {
    const { body, attributes, systemAttributes, ...rest } = raw;
    Object.assign(this, rest);
    this.body = typeof body === "string" ? body : value(body);
    this.attributes = Object.fromEntries(attributes.map((one) => [one.name, value(one.value)]));
    this.systemAttributes = Object.fromEntries(systemAttributes);
  }

  /** The body as JSON; a body that is none rejects the message. */
  json() {
    const text = typeof this.body === "string" ? this.body : new TextDecoder().decode(this.body);
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Reject(`the body: ${error.message}`);
    }
  }

  /** How many milliseconds are left until the attempt is stopped. */
  get timeLeftMs() {
    return Math.max(0, this.deadline - Date.now());
  }

  /** Whether what the handler answers no longer counts. */
  get cancelled() {
    return need("context").cancelled(this.id);
  }

  /** Requests that the attempt may take so many milliseconds from now; how many it may. */
  extend(ms) {
    const deadline = need("context").extend(this.id, time(ms, "extend") ?? 0);
    if (deadline !== null && deadline !== undefined) this.deadline = deadline;
    return this.timeLeftMs;
  }
}

const bodyOf = (body) => {
  if (typeof body === "string") return { tag: "text", val: body };
  if (body instanceof Uint8Array) return { tag: "bytes", val: body };
  return { tag: "text", val: JSON.stringify(body) };
};

const attribute = ([name, value]) => {
  if (value instanceof Uint8Array) {
    return { name, dataType: "Binary", value: { tag: "binary", val: value } };
  }
  const dataType = typeof value === "number" ? "Number" : "String";
  return { name, dataType, value: { tag: "text", val: String(value) } };
};

/** Why a message was not sent: `code` is forbidden, refused or unavailable. */
export class SendError extends Error {
  constructor({ tag, val }) {
    super(val);
    this.name = "SendError";
    this.code = tag;
  }
}

/** Sends a message to a queue, and returns its id. What is no text or bytes is sent as JSON. */
export async function send(queue, body, { delayMs, attributes, group, deduplicationId } = {}) {
  const outgoing = {
    body: bodyOf(body),
    attributes: Object.entries(attributes ?? {}).map(attribute),
    delay: time(delayMs, "send: delayMs") ?? 0,
    group: group ?? null,
    deduplicationId: deduplicationId ?? null,
  };
  const sending = (async () => need("queues").send(queue, outgoing))();
  try {
    return await track(sending);
  } catch (error) {
    const known = errorOf(error);
    throw known === undefined ? error : new SendError(known);
  }
}

/** Why a function gave no answer: `code` is what that proves, as did-not-run or may-have-run. */
export class InvokeError extends Error {
  constructor({ tag, val }) {
    super(val?.reason ?? val);
    this.name = "InvokeError";
    this.code = tag;
    this.retryAfterMs = val?.retryAfter ?? null;
  }
}

/** Invokes a Lambda function with an event, and returns its answer; nothing without `wait`. */
export async function invoke(name, event, { wait = true } = {}) {
  const payload = new TextEncoder().encode(JSON.stringify(event));
  const invocation = wait ? "request-response" : "event";
  const request = { function: name, invocation, payload, logTail: false, deadline: null };
  const invoking = (async () => need("lambda").invoke(request))();
  let answer;
  try {
    answer = await track(invoking);
  } catch (error) {
    const known = errorOf(error);
    throw known === undefined ? error : new InvokeError(known);
  }
  const text = new TextDecoder().decode(answer.payload);
  if (answer.functionError) throw new InvokeError({ tag: "function-error", val: text });
  return text === "" ? undefined : JSON.parse(text);
}

/** Logs a line with details: `log("warn", "no price", { order: "o-1" })`. */
export function log(level, text, fields = {}) {
  const details = Object.entries(fields).map(([name, value]) => [name, String(value)]);
  need("log").write({ level, text: String(text), fields: details, messageId: null });
}

const labelsOf = (labels) => Object.entries(labels).map(([name, value]) => [name, String(value)]);

const measured = (measure) => {
  try {
    measure();
  } catch (error) {
    const known = errorOf(error);
    throw known === undefined ? error : new TypeError(known.val ?? known.tag);
  }
};

/** Adds to a counter of the plugin's own, shown as `plugin_NAME_total`. */
export function count(name, { by = 1, ...labels } = {}) {
  measured(() => need("metrics").add(name, labelsOf(labels), by));
}

/** Sets a gauge of the plugin's own, shown as `plugin_NAME`. */
export function gauge(name, level, labels = {}) {
  measured(() => need("metrics").set(name, labelsOf(labels), level));
}
