// `AbortController` and `AbortSignal`, with the parts of `EventTarget` that they need.

class Aborted extends Error {
  constructor(name, text) {
    super(text);
    this.name = name;
  }
}

export class AbortSignal {
  #reason;
  #isAborted = false;
  #endsAt;
  /** The timer that aborts the signal, while it has listeners. */
  #timer;
  #listeners = new Set();
  #onabort = null;
  /** The callbacks of requests and of signals that depend on this one. They need no timer: the host
   * limits the time of a request. */
  #followers = new Set();

  get aborted() {
    this.#look();
    return this.#isAborted;
  }

  get reason() {
    this.#look();
    return this.#reason;
  }

  get onabort() {
    return this.#onabort;
  }

  set onabort(listener) {
    this.#onabort = typeof listener === "function" ? listener : null;
    this.#keepTime();
  }

  /** The milliseconds until the signal aborts; null if it has no time limit. */
  get timeLeftMs() {
    return this.#endsAt === undefined ? null : Math.max(0, Math.ceil(this.#endsAt - Date.now()));
  }

  /** Aborts the signal because its time is over. */
  timeOut() {
    this.abortWith(new Aborted("TimeoutError", "The operation was aborted due to timeout"));
  }

  #look() {
    if (!this.#isAborted && this.#endsAt !== undefined && Date.now() >= this.#endsAt) this.timeOut();
  }

  throwIfAborted() {
    if (this.aborted) throw this.#reason;
  }

  addEventListener(type, listener, options) {
    if (type !== "abort") return;
    this.#listeners.add({ listener, isOnce: options?.once === true });
    this.#keepTime();
  }

  removeEventListener(type, listener) {
    for (const one of this.#listeners) if (one.listener === listener) this.#listeners.delete(one);
    this.#keepTime();
  }

  /** Calls back when the signal aborts. Returns a function that removes the callback. */
  follow(callback) {
    this.#followers.add(callback);
    return () => void this.#followers.delete(callback);
  }

  /** Keeps a timer while a signal with a time limit has listeners. */
  #keepTime() {
    if (this.#endsAt === undefined || this.#isAborted) return;
    const isHeard = this.#onabort !== null || this.#listeners.size > 0;
    if (isHeard) this.#timer ??= globalThis.setTimeout(() => this.#look(), this.timeLeftMs);
    else this.#forgetTime();
  }

  #forgetTime() {
    if (this.#timer !== undefined) globalThis.clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  abortWith(reason) {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason ?? new Aborted("AbortError", "This operation was aborted");
    this.#forgetTime();
    for (const follower of [...this.#followers]) follower();
    const event = { type: "abort", target: this, currentTarget: this };
    this.#onabort?.call(this, event);
    for (const one of [...this.#listeners]) {
      if (one.isOnce) this.#listeners.delete(one);
      if (typeof one.listener === "function") one.listener.call(this, event);
      else one.listener.handleEvent(event);
    }
  }

  static abort(reason) {
    const signal = new AbortSignal();
    signal.abortWith(reason);
    return signal;
  }

  /** Returns a signal with a time limit. The host limits the time of requests, a timer that of
   * listeners. */
  static timeout(ms) {
    const signal = new AbortSignal();
    signal.#endsAt = Date.now() + ms;
    return signal;
  }

  static any(signals) {
    const all = new AbortSignal();
    for (const signal of signals) {
      if (signal.aborted) {
        all.abortWith(signal.reason);
        break;
      }
      const endsAt = signal.#endsAt ?? Infinity;
      if (endsAt < (all.#endsAt ?? Infinity)) all.#endsAt = endsAt;
      signal.follow(() => all.abortWith(signal.reason));
    }
    return all;
  }
}

export class AbortController {
  signal = new AbortSignal();

  abort(reason) {
    this.signal.abortWith(reason);
  }
}
