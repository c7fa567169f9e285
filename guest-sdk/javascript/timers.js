// `setTimeout` and what belongs to it, over the clock of WASI 0.3. Each timer waits by itself, since
// what waits belongs to the attempt that began it.

import { need } from "./host.js";

/** How long a wait may outlast a timer that was cleared. */
const PIECE_MS = 250;
const NS = 1_000_000;
/** How often a timer lets earlier ones go first, of which one may never come. */
const TURNS = 8;

let last = 0;
/** When each timer is due, by its id. */
const active = new Map();
const waiting = [];

const sleep = (ms) => need("clock", "wasi:clocks/monotonic-clock@0.3.0").waitFor(Math.round(ms * NS));

const isAnyBefore = (at) => [...active.values()].some((other) => other < at);

/** Calls back at this time, unless the timer is cleared. What it throws is a rejection that nobody
 * awaits. */
async function begin(id, at, callback) {
  active.set(id, at);
  await null;
  for (let left = at - Date.now(); left > 0 && active.has(id); left = at - Date.now()) {
    await sleep(Math.min(left, PIECE_MS));
  }
  // After a stall several are due at once: the earliest is first.
  for (let turn = 0; turn < TURNS && active.has(id) && isAnyBefore(at); turn++) await sleep(1);
  if (active.has(id)) callback();
}

const delayOf = (ms) => (Number(ms) > 0 ? Number(ms) : 0);

export function setTimeout(callback, ms, ...values) {
  if (typeof callback !== "function") throw new TypeError("setTimeout: wanted a function");
  const id = ++last;
  const call = () => {
    end(id);
    callback(...values);
  };
  begin(id, Date.now() + delayOf(ms), call);
  return id;
}

export function setInterval(callback, ms, ...values) {
  if (typeof callback !== "function") throw new TypeError("setInterval: wanted a function");
  const id = ++last;
  const every = Math.max(delayOf(ms), 1);
  const again = () => begin(id, Date.now() + every, call);
  const call = () => {
    callback(...values);
    if (active.has(id)) again();
  };
  again();
  return id;
}

export function clearTimeout(id) {
  end(id);
}

function end(id) {
  active.delete(id);
  if (active.size === 0) for (const wake of waiting.splice(0)) wake();
}

/** How many timers there are. */
export const timersLeft = () => active.size;

/** Calls back once, when there is no timer any more. */
export function whenOver(callback) {
  if (active.size > 0) waiting.push(callback);
  else callback();
}

/** Clears all timers. */
export function clearTimers() {
  active.clear();
  for (const wake of waiting.splice(0)) wake();
}
