// `AbortController` and `AbortSignal`, and as much of `EventTarget` as they need.

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
  #listeners = new Set();
  onabort = null;

  get aborted() {
    this.#look();
    return this.#isAborted;
  }

  get reason() {
    this.#look();
    return this.#reason;
  }

  /** How long it still lets things go on, where that is known. */
  get timeLeftMs() {
    return this.#endsAt === undefined ? null : Math.max(0, Math.ceil(this.#endsAt - Date.now()));
  }

  /** What it throws when its time is over. */
  timedOut() {
    return new Aborted("TimeoutError", "The operation was aborted due to timeout");
  }

  #look() {
    if (!this.#isAborted && this.#endsAt !== undefined && Date.now() >= this.#endsAt) {
      this.abortWith(this.timedOut());
    }
  }

  throwIfAborted() {
    if (this.aborted) throw this.#reason;
  }

  addEventListener(type, listener, options) {
    if (type === "abort") this.#listeners.add({ listener, isOnce: options?.once === true });
  }

  removeEventListener(type, listener) {
    for (const one of this.#listeners) if (one.listener === listener) this.#listeners.delete(one);
  }

  abortWith(reason) {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason ?? new Aborted("AbortError", "This operation was aborted");
    const event = { type: "abort", target: this };
    this.onabort?.call(this, event);
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

  /** The host keeps the time of a request; nothing else is interrupted by it. */
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
      signal.addEventListener("abort", () => all.abortWith(signal.reason));
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
