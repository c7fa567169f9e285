// What an order must look like. Imports nothing of the host, so `npm test` runs it as it is.

// How long an order may take to become ready, where it does not say itself.
const PATIENCE_MS = 2000;

const reject = (why) => ({ tag: "reject", val: why });

const isWhole = (value) => Number.isSafeInteger(value) && value >= 0;

/** The order in a message's body, or a failure of the contract as an exception. */
export function check(body) {
  let order;
  try {
    order = JSON.parse(body);
  } catch (error) {
    throw reject(error.message);
  }
  const { id, amount, ready, ready_in_ms: patience } = order ?? {};
  if (typeof id !== "string") throw reject("`id`: wanted a string");
  if (!isWhole(amount)) throw reject("`amount`: wanted a whole number of cents");
  if (amount === 0) throw reject("`amount`: wanted more than nothing");
  if (ready === false) throw { tag: "retry", val: isWhole(patience) ? patience : PATIENCE_MS };
  if (ready !== undefined && ready !== null && ready !== true) {
    throw reject("`ready`: wanted true or false");
  }
  return { id, amount };
}
