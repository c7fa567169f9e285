// The API for handlers: messages, failures as exceptions, sending, logging and metrics.

import { errorOf, need, track } from "./host.js";

export { StoreError, openStore, setting } from "./store.js";

/** A failure of the contract, which a handler throws. */
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

/** A failure that rejects the message. The message goes to the dead-letter queue with this reason
 * and is not tried again. */
export class Reject extends Failure {
  constructor(reason, options) {
    super(String(reason), options);
  }

  toFailure() {
    return { tag: "reject", val: this.message };
  }
}

/** A failure that retries the message after this many milliseconds, or by the route's policy. */
export class Retry extends Failure {
  constructor({ afterMs, reason, cause } = {}) {
    super(reason ?? "", cause === undefined ? undefined : { cause });
    this.afterMs = time(afterMs, "Retry: afterMs");
  }

  toFailure() {
    return { tag: "retry", val: { after: this.afterMs, reason: this.message || null } };
  }
}

/** A failure because something is busy. Nothing was done for the message. The dispatcher keeps the
 * lease and tries again. */
export class Busy extends Failure {
  constructor(reason, { afterMs } = {}) {
    super(String(reason));
    this.afterMs = time(afterMs, "Busy: afterMs");
  }

  toFailure() {
    return { tag: "busy", val: { after: this.afterMs, reason: this.message } };
  }
}

/** A failure of every message of the route until someone acts. Nothing was done for the message. */
export class Closed extends Failure {
  constructor(reason) {
    super(String(reason));
  }

  toFailure() {
    return { tag: "closed", val: this.message };
  }
}

const isTime = (ms) => ms === null || ms === undefined || (Number.isFinite(ms) && ms >= 0);
const isText = (text) => text === null || text === undefined || typeof text === "string";

/** Returns the failure that a plain object represents: `{ tag, val }`, as in the contract. The
 * `val` of a retry may be a number of milliseconds. Returns undefined for any other value. */
function plainFailure(thrown) {
  if (thrown === null || typeof thrown !== "object" || thrown instanceof Error) return undefined;
  const { tag, val } = thrown;
  switch (tag) {
    case "retry": {
      const { after, reason } = val !== null && typeof val === "object" ? val : { after: val };
      if (!isTime(after) || !isText(reason)) return undefined;
      return { tag, val: { after: time(after), reason: reason ?? null } };
    }
    case "reject":
    case "closed":
      return typeof val === "string" ? { tag, val } : undefined;
    case "busy":
      return typeof val?.reason === "string" && isTime(val.after)
        ? { tag, val: { after: time(val.after), reason: val.reason } }
        : undefined;
    default:
      return undefined;
  }
}

/** Converts an exception to a failure of the contract; undefined if it is not a failure. */
export function failureOf(thrown) {
  return thrown instanceof Failure ? thrown.toFailure() : plainFailure(thrown);
}

const value = ({ tag, val }) => (tag === "binary" || tag === "bytes" || tag === "text" ? val : undefined);

/** One delivery of a message. */
export class Message {
  constructor(raw) {
    const { body, attributes, systemAttributes, ...rest } = raw;
    Object.assign(this, rest);
    this.body = typeof body === "string" ? body : value(body);
    this.attributes = Object.fromEntries(attributes.map((one) => [one.name, value(one.value)]));
    this.systemAttributes = Object.fromEntries(systemAttributes);
  }

  /** Parses the body as JSON. If that fails, rejects the message. */
  json() {
    const text = typeof this.body === "string" ? this.body : new TextDecoder().decode(this.body);
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Reject(`the body: ${error.message}`);
    }
  }

  /** The milliseconds until the attempt is stopped. */
  get timeLeftMs() {
    return Math.max(0, this.deadline - Date.now());
  }

  /** Whether the dispatcher ignores the handler's outcome. */
  get cancelled() {
    return need("context").cancelled(this.id);
  }

  /** Requests that the attempt may take this many milliseconds from now. Returns how many are
   * granted. */
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

/** The reason why a message was not sent. `code` is forbidden, refused or unavailable. */
export class SendError extends Error {
  constructor({ tag, val }) {
    super(val);
    this.name = "SendError";
    this.code = tag;
  }
}

/** Sends a message to a queue and returns its ID. A body that is not text or bytes is sent as
 * JSON. */
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

/** The reason why an invocation failed. `code` says whether the function ran, such as did-not-run
 * or may-have-run. */
export class InvokeError extends Error {
  constructor({ tag, val }) {
    super(val?.reason ?? val);
    this.name = "InvokeError";
    this.code = tag;
    this.retryAfterMs = val?.retryAfter ?? null;
  }
}

/** Invokes a Lambda function with an event and returns its response. Without `wait`, returns
 * undefined. */
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

/** Logs a line with fields: `log("warn", "no price", { order: "o-1" })`. */
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

/** Adds to a counter of the plugin. The metrics page shows it as `plugin_NAME_total`. */
export function count(name, { by = 1, ...labels } = {}) {
  measured(() => need("metrics").add(name, labelsOf(labels), by));
}

/** Sets a gauge of the plugin. The metrics page shows it as `plugin_NAME`. */
export function gauge(name, level, labels = {}) {
  measured(() => need("metrics").set(name, labelsOf(labels), level));
}
