// What the engine (QuickJS) lacks, as globals of a component; and how its handler is called. Loaded
// before the handler.

import "core-js/actual/url/index.js";
import "core-js/actual/url-search-params/index.js";
import "core-js/actual/atob.js";
import "core-js/actual/btoa.js";
import { AbortController, AbortSignal } from "./abort.js";
import { crypto, randomNumber } from "./crypto.js";
import { TextDecoder, TextEncoder } from "./encoding.js";
import { Headers, Request, Response, fetch } from "./fetch.js";
import { isCalling, whenAnswered } from "./host.js";
import { Message, failureOf, log } from "./index.js";
import { clearTimeout, clearTimers, setInterval, setTimeout, timersLeft, whenOver } from "./timers.js";

export { provide } from "./host.js";

function show(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) {
    const own = value.stack ? `${value}\n${value.stack}` : String(value);
    return value.cause === undefined ? own : `${own}\ncaused by ${show(value.cause)}`;
  }
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    // It holds itself, or a BigInt.
    return String(value);
  }
}

const line =
  (level) =>
  (...values) => {
    for (const text of values.map(show).join(" ").trimEnd().split("\n")) log(level, text);
  };

const lines = {
  trace: line("trace"),
  debug: line("debug"),
  log: line("info"),
  info: line("info"),
  warn: line("warn"),
  error: line("error"),
};

Object.assign(globalThis, {
  AbortController,
  AbortSignal,
  Headers,
  Request,
  Response,
  TextDecoder,
  TextEncoder,
  clearInterval: clearTimeout,
  clearTimeout,
  console: { ...lines, assert: (is, ...values) => is || lines.error("Assertion failed:", ...values) },
  crypto,
  fetch,
  setInterval,
  setTimeout,
});
globalThis.queueMicrotask ??= (callback) => void Promise.resolve().then(callback);
Math.random = randomNumber;

/** How a failure of 0.1, as an object, is said in 0.2. */
function renewed({ tag, val }) {
  const isTime = val === null || typeof val === "number";
  return tag === "retry" && isTime ? { tag, val: { after: val, reason: null } } : { tag, val };
}

/** What the adapter asks of whoever knows the contract. */
export const contract = {
  argument: (raw) => (Array.isArray(raw) ? raw.map((one) => new Message(one)) : new Message(raw)),
  failure: (thrown, old) => failureOf(thrown) ?? (old && renewed(old)),
  isCalling,
  whenAnswered,
  isWaiting: () => isCalling() || timersLeft() > 0,
  whenOver: (callback) => whenAnswered(() => whenOver(callback)),
  /** The handler has ended: whether timers were left, and are no more. */
  dropTimers() {
    const left = timersLeft();
    if (left > 0) log("debug", "timers dropped: the handler has ended", { timers: left });
    clearTimers();
    return left > 0;
  },
};
