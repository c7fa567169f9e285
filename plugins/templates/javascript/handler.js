// Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
// A malformed order is rejected, one that is not ready yet is tried again.

import { check } from "./order.js";

// To return without a value is done; `handle` may be async. To throw one of these is a failure:
//   new Retry({ afterMs: 2000, reason: "why" })    again later; new Retry(): by the route's policy
//   new Reject("why")                              never again: the message goes to the dead-letter queue
// Any other exception goes to the log, and the message comes again by the route's policy.
export const handler = {
  async handle(message) {
    const order = check(message.json());
    console.log(`order ${order.id}: ${order.amount} cents`);
  },
};
