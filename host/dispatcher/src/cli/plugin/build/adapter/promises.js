// A Promise that remembers what became of each one: whether it was rejected and nobody listened, and
// whether a continuation of it still waits. QuickJS keeps no such account for a component. The build
// turns async functions into generators that use this Promise, so nothing escapes it. Must be loaded
// before any other module.

const Native = globalThis.Promise;
const nativeThen = Native.prototype.then;

// Jobs that must run without a sign of activity before nothing is left to run: a rejection is seen
// one job after it happened, and what it continues one job later.
const QUIET_JOBS = 3;

let activity = 0;
let isObserving = false;
/** Promises that somebody listens to. */
const heard = new WeakSet();
/** Rejected promises that nobody listens to, with their reasons. */
const unheard = new Map();
/** Continuations that have not run to their end. */
const waiting = new Set();

function observe(promise) {
  // What the observer itself makes is no promise of the handler's.
  isObserving = true;
  try {
    nativeThen.call(
      promise,
      () => {
        activity += 1;
        waiting.delete(promise);
      },
      (reason) => {
        activity += 1;
        waiting.delete(promise);
        if (!heard.has(promise)) unheard.set(promise, reason);
      },
    );
  } finally {
    isObserving = false;
  }
}

globalThis.Promise = class Promise extends Native {
  static get [Symbol.species]() {
    return isObserving ? Native : this;
  }

  constructor(executor) {
    super(executor);
    activity += 1;
    observe(this);
  }

  then(onFulfilled, onRejected) {
    activity += 1;
    heard.add(this);
    unheard.delete(this);
    const derived = super.then(onFulfilled, onRejected);
    waiting.add(derived);
    return derived;
  }
};

/** Whether an attempt has begun before. */
let isUsed = false;

/** Forgets what earlier attempts left: another begins. What was rejected before the first one fails it,
 * since nobody else can say so. */
export function forget() {
  waiting.clear();
  if (isUsed) unheard.clear();
  isUsed = true;
}

/** Calls back when no job is left that could do anything. */
export function whenQuiet(callback, jobs = QUIET_JOBS) {
  const before = activity;
  nativeThen.call(Native.resolve(), () => {
    const left = activity === before ? jobs - 1 : QUIET_JOBS;
    if (left > 0) whenQuiet(callback, left);
    else callback();
  });
}

/** Why each promise was rejected that nobody listened to. */
export const rejections = () => [...unheard.values()];

/** How many continuations wait for something that has not come. */
export const stillWaiting = () => waiting.size;

export { Native };
