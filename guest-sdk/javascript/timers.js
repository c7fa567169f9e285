// `setTimeout`, `setInterval` and the functions that clear them, based on a clock. Each timer waits
// separately, because a wait belongs to the attempt that started it.

/** The longest time that a wait continues after its timer is cleared. */
const PIECE_MS = 250;
/** The maximum number of times that a timer waits for earlier ones. One of them may never run. */
const TURNS = 8;

const delayOf = (ms) => (Number(ms) > 0 ? Number(ms) : 0);

/** The timers of a component, or of one attempt in a test. */
export class Timers {
  #sleep;
  #last = 0;
  /** The time when each timer is due, by its ID. */
  #active = new Map();
  #waiting = [];

  /** Creates timers. `sleep` returns a promise that resolves after the given number of
   * milliseconds. */
  constructor(sleep) {
    this.#sleep = sleep;
  }

  setTimeout = (callback, ms, ...values) => {
    if (typeof callback !== "function") throw new TypeError("setTimeout: wanted a function");
    const id = ++this.#last;
    const call = () => {
      this.clearTimeout(id);
      callback(...values);
    };
    this.#begin(id, Date.now() + delayOf(ms), call);
    return id;
  };

  setInterval = (callback, ms, ...values) => {
    if (typeof callback !== "function") throw new TypeError("setInterval: wanted a function");
    const id = ++this.#last;
    const every = Math.max(delayOf(ms), 1);
    const again = () => this.#begin(id, Date.now() + every, call);
    const call = () => {
      callback(...values);
      if (this.#active.has(id)) again();
    };
    again();
    return id;
  };

  clearTimeout = (id) => {
    this.#active.delete(id);
    if (this.#active.size === 0) this.#wake();
  };

  /** The number of timers. */
  get left() {
    return this.#active.size;
  }

  /** Calls back once, when there are no timers. */
  whenOver(callback) {
    if (this.#active.size > 0) this.#waiting.push(callback);
    else callback();
  }

  /** Clears all timers. */
  clear() {
    this.#active.clear();
    this.#wake();
  }

  /** Calls back at this time, unless the timer is cleared. An exception of the callback is a
   * rejection that is not awaited. */
  async #begin(id, at, callback) {
    this.#active.set(id, at);
    await null;
    if (!this.#active.has(id)) return;
    // Sleep at least once, even if the timer is already due: earlier requests go first.
    do await this.#sleep(Math.min(Math.max(at - Date.now(), 1), PIECE_MS));
    while (Date.now() < at && this.#active.has(id));
    // After a pause, several timers may be due at once. The earliest goes first.
    for (let turn = 0; turn < TURNS && this.#active.has(id) && this.#isAnyBefore(at); turn++) {
      await this.#sleep(1);
    }
    if (this.#active.has(id)) callback();
  }

  #isAnyBefore(at) {
    return [...this.#active.values()].some((other) => other < at);
  }

  #wake() {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
