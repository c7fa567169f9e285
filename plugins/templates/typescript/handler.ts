// Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
// A malformed order is rejected, one that is not ready yet is tried again.

import { Reject, Retry, type Handler } from "dispatcher-guest";

/** How long an order may take to become ready, where it does not say itself. */
const PATIENCE_MS = 2000;

interface Order {
  id: string;
  amount: number;
}

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function check(body: Record<string, unknown> | null): Order {
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

// To return without a value is done; `handle` may be async. To throw a `Reject` or a `Retry` is a
// failure; any other exception goes to the log, and the message comes again by the route's policy.
export const handler: Handler = {
  async handle(message) {
    const order = check(message.json());
    console.log(`order ${order.id}: ${order.amount} cents`);
  },
};
