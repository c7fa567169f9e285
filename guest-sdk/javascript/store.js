// The settings and the key-value stores that the configuration grants.

import { errorOf, need } from "./host.js";

/** The reason why a call to a store or a setting failed. `code` is access-denied or failed. */
export class StoreError extends Error {
  constructor({ tag, val }) {
    const isDenied = tag === "access-denied" || tag === "no-such-store";
    super(isDenied ? "the store is not granted to this plugin: --store" : String(val));
    this.name = "StoreError";
    this.code = isDenied ? "access-denied" : "failed";
  }
}

function asked(call) {
  try {
    return call();
  } catch (error) {
    const known = errorOf(error);
    throw known === undefined ? error : new StoreError(known);
  }
}

const bytesOf = (value) => (value instanceof Uint8Array ? value : new TextEncoder().encode(String(value)));

/** A key-value store. Values are bytes. */
class Store {
  #bucket;

  constructor(bucket) {
    this.#bucket = bucket;
  }

  /** Returns the value as bytes; undefined if there is none. */
  get(key) {
    return asked(() => this.#bucket.get(key)) ?? undefined;
  }

  /** Returns the value as text; undefined if there is none. */
  text(key) {
    const value = this.get(key);
    return value && new TextDecoder().decode(value);
  }

  set(key, value) {
    asked(() => this.#bucket.set(key, bytesOf(value)));
  }

  delete(key) {
    asked(() => this.#bucket.delete(key));
  }

  has(key) {
    return asked(() => this.#bucket.exists(key));
  }

  /** Returns all keys, in no particular order. */
  keys() {
    const keys = [];
    for (let cursor = null; ; ) {
      const page = asked(() => this.#bucket.listKeys(cursor));
      keys.push(...page.keys);
      cursor = page.cursor ?? null;
      if (cursor === null) return keys;
    }
  }

  /** Adds to a number atomically and returns the sum. A missing number counts as 0. */
  increment(key, by = 1) {
    const atomics = need("atomics");
    return Number(asked(() => atomics.increment(this.#bucket, key, by)));
  }
}

/** Opens the store that the configuration grants under this name. */
export function openStore(name) {
  const store = need("store");
  return new Store(asked(() => store.open(name)));
}

/** Returns the setting with this name; undefined if there is none. */
export function setting(name) {
  const settings = need("settings");
  return asked(() => settings.get(name)) ?? undefined;
}
