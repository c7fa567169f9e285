// What an order must look like.

import { Reject, Retry } from "dispatcher-guest";

// How long an order may take to become ready, where it does not say itself.
const PATIENCE_MS = 2000;

const isWhole = (value) => Number.isSafeInteger(value) && value >= 0;

/** The order that a body is, or an exception that says what becomes of the message. */
export function check(body) {
  const { id, amount, ready, ready_in_ms: patience } = body ?? {};
  if (typeof id !== "string") throw new Reject("`id`: wanted a string");
  if (!isWhole(amount)) throw new Reject("`amount`: wanted a whole number of cents");
  if (amount === 0) throw new Reject("`amount`: wanted more than nothing");
  if (ready === false) throw new Retry({ afterMs: isWhole(patience) ? patience : PATIENCE_MS });
  if (ready !== undefined && ready !== null && ready !== true) {
    throw new Reject("`ready`: wanted true or false");
  }
  return { id, amount };
}
