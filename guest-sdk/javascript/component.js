// Adds the globals that the engine (QuickJS) lacks to a component, and provides the functions that
// call its handler. It is loaded before the handler.

import "core-js/actual/url/index.js";
import "core-js/actual/url-search-params/index.js";
import "core-js/actual/atob.js";
import "core-js/actual/btoa.js";
import { AbortController, AbortSignal } from "./abort.js";
import { crypto, randomNumber } from "./crypto.js";
import { TextDecoder, TextEncoder } from "./encoding.js";
import { Headers, Request, Response, fetch } from "./fetch.js";
import { isCalling, need, whenAnswered } from "./host.js";
import { Message, failureOf, log } from "./index.js";
import { stackOf } from "./stack.js";
import { Timers } from "./timers.js";

export { provide } from "./host.js";

const NS = 1_000_000;
const timers = new Timers((ms) => need("clock").waitFor(Math.round(ms * NS)));
const { clearTimeout, setInterval, setTimeout } = timers;

function show(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) {
    const stack = stackOf(value);
    const own = stack ? `${value} at ${stack}` : String(value);
    return value.cause === undefined ? own : `${own}\ncaused by ${show(value.cause)}`;
  }
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    // The value contains itself or a BigInt.
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
// An exception of the callback is a rejection that is not awaited, which fails the attempt.
globalThis.queueMicrotask = (callback) => void Promise.resolve().then(() => callback());
Math.random = randomNumber;

/** The functions that depend on the contract, for the adapter that calls the handler. */
export const contract = {
  argument: (raw) => (Array.isArray(raw) ? raw.map((one) => new Message(one)) : new Message(raw)),
  failure: failureOf,
  /** Logs why an attempt failed, as one record with the stack of the source. */
  logFailure(text, error) {
    const stack = stackOf(error);
    log("error", text, stack ? { stack } : {});
  },
  isCalling,
  whenAnswered,
  isWaiting: () => isCalling() || timers.left > 0,
  whenOver: (callback) => whenAnswered(() => timers.whenOver(callback)),
  /** Drops the remaining timers after the handler has ended. Returns whether there were any. */
  dropTimers() {
    const { left } = timers;
    if (left > 0) log("debug", "timers dropped: the handler has ended", { timers: left });
    timers.clear();
    return left > 0;
  },
};
