// Settings, and keys with values, that the configuration grants.

import { errorOf, need } from "./host.js";

/** Why a store or a setting was not read or written: `code` is access-denied or failed. */
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

/** Keys and their values, which are bytes. */
class Store {
  #bucket;

  constructor(bucket) {
    this.#bucket = bucket;
  }

  /** The value as bytes; undefined if there is none. */
  get(key) {
    return asked(() => this.#bucket.get(key)) ?? undefined;
  }

  /** The value as text; undefined if there is none. */
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

  /** All keys, in no order. */
  keys() {
    const keys = [];
    for (let cursor = null; ; ) {
      const page = asked(() => this.#bucket.listKeys(cursor));
      keys.push(...page.keys);
      cursor = page.cursor ?? null;
      if (cursor === null) return keys;
    }
  }

  /** Adds to a number, from 0, in one step, and returns the sum. */
  increment(key, by = 1) {
    const atomics = need("atomics");
    return Number(asked(() => atomics.increment(this.#bucket, key, by)));
  }
}

/** The store that the configuration grants by this name. */
export function openStore(name) {
  const store = need("store");
  return new Store(asked(() => store.open(name)));
}

/** The text that the configuration gives this name; undefined if there is none. */
export function setting(name) {
  const settings = need("settings");
  return asked(() => settings.get(name)) ?? undefined;
}
