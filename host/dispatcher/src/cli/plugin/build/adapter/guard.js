// Calls the project's handler and answers "done" only if it did its work: what it returns, throws
// and leaves behind is checked first. Knows the contract and no project.

import { forget, Native, rejections, stillWaiting, whenQuiet } from "./promises.js";

const SHAPES = { handler: "handle(message) { ... }", batchHandler: "handle(messages) { ... }" };

const STUCK =
  "a promise that it waits for is never settled: no call of the host and no timer is under way";

/** Attempts under way in this instance. */
let running = 0;

function show(value) {
  if (typeof value === "string") return JSON.stringify(value);
  if (value instanceof Error) return value.stack ? `${value}\n${value.stack}` : String(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    // It holds itself, or a BigInt.
    return Object.prototype.toString.call(value);
  }
}

const isThenable = (value) =>
  value !== null && typeof value === "object" && typeof value.then === "function";

const isAbsent = (value) => value === null || value === undefined;
const isTime = (value) => isAbsent(value) || (Number.isFinite(value) && value >= 0);
const time = (value) =>
  isAbsent(value) ? null : Math.ceil(Math.min(value, Number.MAX_SAFE_INTEGER));

/** The failure of the contract that a value is, or undefined. */
function failureOf(thrown) {
  if (thrown === null || typeof thrown !== "object" || thrown instanceof Error) return undefined;
  const { tag, val } = thrown;
  switch (tag) {
    case "retry":
      return isTime(val) ? { tag, val: time(val) } : undefined;
    case "reject":
    case "closed":
      return typeof val === "string" ? { tag, val } : undefined;
    case "busy":
      return typeof val?.reason === "string" && isTime(val.after)
        ? { tag, val: { after: time(val.after), reason: val.reason } }
        : undefined;
    default:
      return undefined;
  }
}

/** The same in the words of the handler's version of the contract, which has its exceptions. */
function failure(thrown, contract) {
  const plain = failureOf(thrown);
  return contract === undefined ? plain : contract.failure(thrown, plain);
}

/** What a handler returned, as the host takes it. */
function told(answer, contract) {
  if (!Array.isArray(answer)) return answer;
  return answer.map((one) => ({ id: one.id, failure: failure(one.failure, contract) }));
}

/** Logs the text and returns the exception that ends the attempt. The engine prints that as well. */
function broken(text) {
  if (globalThis.console === undefined) return new Error(text);
  console.error(text.trimEnd());
  const [line] = text.split("\n", 1);
  return Object.assign(new Error(line), { stack: "" });
}

function uncaught(thrown, contract) {
  if (thrown instanceof Error) return unhandled(`uncaught ${show(thrown)}`, contract);
  return unhandled(
    `the handler threw ${show(thrown)}; wanted an Error or a failure: new Reject("why"), new Retry(), or ` +
      `{ tag: "retry", val: null or milliseconds }, { tag: "reject", val: "why" }, ` +
      `{ tag: "busy", val: { after, reason } }, { tag: "closed", val: "why" }`,
    contract,
  );
}

/** The most characters of a reason. */
const MOST_REASON = 1000;

/** Logs the text and returns what ends the attempt: a retry with the first line as its reason, which a
 * dead letter has then, or in version 0.1 of the contract, which has no reasons, an exception. */
function unhandled(text, contract) {
  if (contract === undefined) return broken(text);
  console.error(text.trimEnd());
  const [line] = text.split("\n", 1);
  return { tag: "retry", val: { after: null, reason: line.slice(0, MOST_REASON) } };
}

/** Why the attempt is not done although the handler has returned; undefined if it is. */
function leftBehind(contract) {
  const reasons = rejections();
  if (reasons.length > 0) {
    const more = reasons.length > 1 ? ` (and ${reasons.length - 1} more)` : "";
    return broken(`a promise that nobody awaits was rejected${more}: ${show(reasons[0])}`);
  }
  // Other attempts in this instance may rightly wait, and have timers.
  if (running === 1 && !contract?.dropTimers() && stillWaiting() > 0) {
    return broken(`the handler returned and left something behind that does not end: ${STUCK}`);
  }
  return undefined;
}

/** Why what a handler returned is not an answer; undefined if it is. */
const CHECKS = {
  handler(answer) {
    if (answer === undefined) return undefined;
    return broken(
      `the handler returned ${show(answer)}; wanted nothing: return without a value when the ` +
        "message is done, and throw a failure when it is not",
    );
  },
  batchHandler(answer, contract) {
    const isFailed = (one) =>
      typeof one?.id === "string" && failure(one.failure, contract) !== undefined;
    if (Array.isArray(answer) && answer.every(isFailed)) return undefined;
    return broken(
      `the handler of batches returned ${show(answer)}; wanted an array of the messages that ` +
        "failed, [{ id, failure }], empty when all are done",
    );
  },
};

/** Calls back when no job is left to run, and of the only attempt no call of the host. */
function whenAnswered(contract, callback) {
  whenQuiet(() => {
    if (running > 1 || !contract?.isCalling()) callback();
    else contract.whenAnswered(() => whenAnswered(contract, callback));
  });
}

/** The same, when no timer is left either. */
function whenIdle(contract, callback) {
  whenQuiet(() => {
    if (running > 1 || !contract?.isWaiting()) callback();
    else contract.whenOver(() => whenIdle(contract, callback));
  });
}

/** Runs one attempt. One that cannot wait for the host is over when nothing is left to run. */
function attempt(call, check, canWait, contract) {
  if (running === 0) forget();
  running += 1;
  return new Native((resolve, reject) => {
    let isOver = false;
    // The first end counts: a strange thenable may answer twice.
    const end = (settle) => {
      if (isOver) return;
      isOver = true;
      whenAnswered(contract, () => {
        settle();
        running -= 1;
      });
    };
    const threw = (thrown) =>
      end(() => {
        if (running === 1) contract?.dropTimers();
        reject(failure(thrown, contract) ?? uncaught(thrown, contract));
      });
    const returned = (answer) =>
      end(() => {
        const wrong = leftBehind(contract) ?? check(answer, contract);
        if (wrong) reject(wrong);
        else resolve(told(answer, contract));
      });
    const isStuck = () => end(() => reject(broken(`the handler does not end: ${STUCK}`)));
    try {
      const answer = call();
      if (!isThenable(answer)) {
        returned(answer);
        return;
      }
      answer.then(returned, threw);
    } catch (thrown) {
      threw(thrown);
      return;
    }
    if (!canWait) whenIdle(contract, isStuck);
  });
}

/** The export, or an error that ends the build. `contract` is of version 0.2 and later. */
export function guard(project, name, file, canWait, contract) {
  const wanted = `wanted: export const ${name} = { ${SHAPES[name]} }`;
  const found = project[name];
  if (found === undefined) {
    const others = Object.keys(project);
    const what = others.length > 0 ? `it exports ${others.join(", ")}` : "it exports nothing";
    throw new Error(`${file}: no export ${name}: ${what}; ${wanted}`);
  }
  if (typeof found?.handle !== "function") {
    throw new Error(`${file}: the export ${name} has no function handle; ${wanted}`);
  }
  const count = found.handle.length;
  if (count > 1) {
    throw new Error(
      `${file}: ${name}.handle takes ${count} parameters and is called with one: there is no ` +
        `context and no callback; ${wanted}`,
    );
  }
  const taken = (argument) => (contract === undefined ? argument : contract.argument(argument));
  const handle = (argument) =>
    attempt(() => found.handle(taken(argument)), CHECKS[name], canWait, contract);
  return { handle };
}
