// Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
// A malformed order is rejected, one that is not ready yet is tried again.

import "./runtime.js";
import { check } from "./order.js";

// To return without a value is done; `handle` may be async. To throw one of these is a failure of the
// contract:
//   { tag: "retry", val: 2000 }      again after so many milliseconds; null: by the route's policy
//   { tag: "reject", val: "why" }    never again: the message goes to the dead-letter queue
// Any other exception goes to the log, and the message comes again by the route's policy.
export const handler = {
  handle(message) {
    const order = check(message.body);
    console.log(`order ${order.id}: ${order.amount} cents`);
  },
};
