// Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
// A malformed order is rejected, one that is not ready yet is tried again.

import "./runtime.js";
import type { Failure, Handler } from "dispatcher:plugin/types@0.1.0";

/** How long an order may take to become ready, where it does not say itself. */
const PATIENCE_MS = 2000;

interface Order {
  id: string;
  amount: number;
}

const reject = (why: string): Failure => ({ tag: "reject", val: why });

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function parse(body: string): Record<string, unknown> {
  try {
    return JSON.parse(body) ?? {};
  } catch (error) {
    throw reject((error as Error).message);
  }
}

function check(body: string): Order {
  const { id, amount, ready, ready_in_ms: patience } = parse(body);
  if (typeof id !== "string") throw reject("`id`: wanted a string");
  if (!isWhole(amount)) throw reject("`amount`: wanted a whole number of cents");
  if (amount === 0) throw reject("`amount`: wanted more than nothing");
  if (ready === false) {
    const again: Failure = { tag: "retry", val: isWhole(patience) ? patience : PATIENCE_MS };
    throw again;
  }
  if (ready !== undefined && ready !== null && ready !== true) {
    throw reject("`ready`: wanted true or false");
  }
  return { id, amount };
}

// To return without a value is done; `handle` may be async. To throw a `Failure` is one; any other
// exception goes to the log, and the message comes again by the route's policy.
export const handler: Handler = {
  handle(message) {
    const order = check(message.body);
    console.log(`order ${order.id}: ${order.amount} cents`);
  },
};
