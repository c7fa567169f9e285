// Runs one attempt of a handler in Node.js by the rules of a component. The handler's promise is
// the outcome. Requests that still run are awaited. The attempt fails if a promise is rejected and
// not awaited, or if nothing can settle the handler's promise. Remaining timers and promises are
// dropped.

import { AsyncLocalStorage } from "node:async_hooks";
import { AbortController, AbortSignal } from "./abort.js";
import { Headers, Request, Response } from "./fetch.js";
import { Timers } from "./timers.js";

/** The timers of Node.js, which no attempt stops. */
const native = { clearTimeout, setImmediate, setTimeout };
/** The attempt that the current code belongs to. */
const current = new AsyncLocalStorage();

/** The interval at which an attempt is checked. */
const LOOK_MS = 5;
/** The number of idle checks in a row after which an attempt counts as stuck. */
const QUIET_LOOKS = 3;

const STUCK =
  "the handler does not end: a promise that it waits for is never settled: no call of the host and no " +
  "timer is under way";
const OVER = "the handler does not end: the attempt ran out of time";

/** The number of Node.js timers that attempts wait for. */
let ownTimers = 0;

/** Calls back after this many milliseconds. Returns a function that cancels the call. */
function later(callback, ms) {
  let isOver = false;
  const end = () => {
    if (!isOver) ownTimers -= 1;
    isOver = true;
  };
  ownTimers += 1;
  const handle = native.setTimeout(() => {
    callback();
    // Node.js counts the timer as active until now.
    end();
  }, ms);
  return () => {
    end();
    native.clearTimeout(handle);
  };
}

/** Resources that cannot settle a handler's promise: closing handles and output streams. */
const IDLE = ["CloseReq", "PipeWrap", "TTYWrap", "WriteWrap"];

/** Returns the number of resources that keep Node.js running, without the timers of attempts. */
function alive() {
  const resources = process.getActiveResourcesInfo?.() ?? [];
  return resources.filter((name) => !IDLE.includes(name)).length - ownTimers;
}

const nextTurn = () => new Promise((resolve) => void native.setImmediate(resolve));

/** Returns the attempt that the current code belongs to; undefined outside of an attempt. */
export const attemptNow = () => current.getStore();

/** Runs code of the test, such as a fake service, outside of the handler's attempt. */
export const outside = (call) => current.exit(call);

const isThenable = (value) => value !== null && typeof value === "object" && typeof value.then === "function";

/** The running attempts, and the test runner's listeners for other rejections. */
const running = new Set();
let others = [];

/** Returns the attempt whose promise was rejected. Some versions of Node.js do not tell; then it is
 * the only running attempt. */
function attemptOfRejection() {
  if (attemptNow() !== undefined || running.size !== 1) return attemptNow();
  return [...running][0];
}

function unhandled(reason, promise) {
  const attempt = attemptOfRejection();
  if (attempt !== undefined) {
    attempt.unheard.set(promise, reason);
    return;
  }
  if (others.length === 0) throw reason;
  for (const other of others) other.call(process, reason, promise);
}

function handledLate(promise) {
  for (const attempt of running) attempt.unheard.delete(promise);
}

function begin(attempt) {
  if (running.size === 0) {
    provideGlobals();
    others = process.listeners("unhandledRejection");
    process.removeAllListeners("unhandledRejection");
    process.on("unhandledRejection", unhandled);
    process.on("rejectionHandled", handledLate);
  }
  running.add(attempt);
}

function end(attempt) {
  running.delete(attempt);
  if (running.size > 0) return;
  process.off("unhandledRejection", unhandled);
  process.off("rejectionHandled", handledLate);
  for (const other of others) process.on("unhandledRejection", other);
}

class Attempt {
  /** The rejected promises that nothing awaits, with their reasons. */
  unheard = new Map();
  #message;
  #calls = 0;
  #last = Promise.resolve();
  #sleepers = new Set();
  #aliveBefore = alive();
  timers = new Timers((ms) => new Promise((resolve) => this.#wakeLater(resolve, ms)));

  constructor(message) {
    this.#message = message;
  }

  /** Makes a call to the host with this time limit, after the earlier calls. Requests do not
   * overlap, and timers wait while one runs. If the call returns a plain value, so does this
   * method. */
  call(ask, timeoutMs) {
    const { timeLeftMs } = this.#message;
    const ms = Math.floor(Math.min(timeoutMs ?? timeLeftMs * 0.9, timeLeftMs));
    const endsAt = Date.now() + ms;
    const timedOut = { tag: "timed-out", val: `no response within ${ms} ms` };
    if (this.#calls === 0) {
      const answer = ask();
      return isThenable(answer) ? this.#await(answer, endsAt, timedOut) : answer;
    }
    const next = this.#last.then(() => {
      if (Date.now() >= endsAt) throw timedOut;
      return ask();
    });
    return this.#await(next, endsAt, timedOut);
  }

  async #await(answer, endsAt, timedOut) {
    this.#calls += 1;
    const whole = new Promise((resolve, reject) => {
      const forget = later(() => reject(timedOut), Math.max(0, endsAt - Date.now()));
      answer.then(resolve, reject).then(forget);
    });
    this.#last = whole.catch(() => {});
    try {
      return await whole;
    } finally {
      // The handler continues before any timer.
      native.setImmediate(() => {
        this.#calls -= 1;
        if (this.#calls === 0) for (const sleeper of this.#sleepers) sleeper.wakeIfDue();
      });
    }
  }

  #wakeLater(resolve, ms) {
    const sleeper = { isDue: false };
    const forget = later(() => {
      sleeper.isDue = true;
      sleeper.wakeIfDue();
    }, ms);
    sleeper.forget = forget;
    sleeper.wakeIfDue = () => {
      if (!sleeper.isDue || this.#calls > 0) return;
      this.#sleepers.delete(sleeper);
      resolve();
    };
    this.#sleepers.add(sleeper);
  }

  #isWaiting() {
    return this.#calls > 0 || this.timers.left > 0 || alive() > this.#aliveBefore || isMocked();
  }

  /** Checks whether the attempt is stuck or its time is over, until it ends. */
  #watch(end) {
    let quiet = 0;
    const look = () => {
      quiet = this.#isWaiting() ? 0 : quiet + 1;
      if (!isMocked() && this.#message.timeLeftMs === 0) return end(new Error(OVER));
      if (quiet === QUIET_LOOKS) return end(new Error(STUCK));
      forget = later(look, LOOK_MS);
    };
    let forget = later(look, LOOK_MS);
    return () => forget();
  }

  /** Resolves to the handler's return value; rejects with the exception of the handler. */
  #ended(call) {
    return new Promise((resolve, reject) => {
      const answer = call();
      if (!isThenable(answer)) return resolve({ answer });
      const forget = this.#watch(reject);
      answer.then(
        (value) => {
          forget();
          resolve({ answer: value });
        },
        (thrown) => {
          forget();
          reject(thrown);
        },
      );
    });
  }

  /** Stops all timers. */
  #stopTimers() {
    for (const sleeper of this.#sleepers) sleeper.forget();
    this.#sleepers.clear();
  }

  /** Waits for the calls that still run. */
  async #settle() {
    this.#stopTimers();
    do await nextTurn();
    while (this.#calls > 0);
    this.#stopTimers();
    this.timers.clear();
  }

  /** Returns the handler's return value. Throws the handler's exception, or the reason why the
   * attempt failed. */
  async run(call) {
    begin(this);
    try {
      const { answer } = await current.run(this, () => this.#ended(call));
      await this.#settle();
      const [reason] = this.unheard.values();
      if (this.unheard.size > 0) {
        const more = this.unheard.size > 1 ? ` (and ${this.unheard.size - 1} more)` : "";
        throw new Error(`a promise that nobody awaits was rejected${more}: ${reason}`, { cause: reason });
      }
      return answer;
    } catch (thrown) {
      await this.#settle();
      throw thrown;
    } finally {
      end(this);
    }
  }
}

/** Runs a handler as one attempt and returns its return value. Throws the handler's exception, or
 * the reason why the attempt failed. */
export const runAttempt = (message, call) => new Attempt(message).run(call);

/** The globals of a component that differ from those of Node.js. Only handlers see them. */
const globals = {
  AbortController: () => AbortController,
  AbortSignal: () => AbortSignal,
  Headers: () => Headers,
  Request: () => Request,
  Response: () => Response,
  setTimeout: ({ timers }) => timers.setTimeout,
  setInterval: ({ timers }) => timers.setInterval,
  clearTimeout: ({ timers }) => timers.clearTimeout,
  clearInterval: ({ timers }) => timers.clearTimeout,
  // An exception of the callback is a rejection that is not awaited.
  queueMicrotask: () => (callback) => void Promise.resolve().then(() => callback()),
};

const ofNode = Object.fromEntries(Object.keys(globals).map((name) => [name, globalThis[name]]));
const own = Object.fromEntries(Object.entries(globals).map(([name, of]) => [name, descriptorOf(name, of)]));

function descriptorOf(name, of) {
  return {
    configurable: true,
    enumerable: true,
    get() {
      const attempt = attemptNow();
      return attempt === undefined ? ofNode[name] : of(attempt);
    },
    // If a test sets a global, such as its own clock, it applies everywhere.
    set(value) {
      Object.defineProperty(globalThis, name, { configurable: true, enumerable: true, writable: true, value });
    },
  };
}

/** Provides the globals for handlers, unless a test has set its own. */
function provideGlobals() {
  for (const name of Object.keys(globals)) {
    if (globalThis[name] === ofNode[name]) Object.defineProperty(globalThis, name, own[name]);
  }
}

/** Returns whether the test has replaced the clock. */
const isMocked = () => Object.getOwnPropertyDescriptor(globalThis, "setTimeout").get !== own.setTimeout.get;

provideGlobals();
