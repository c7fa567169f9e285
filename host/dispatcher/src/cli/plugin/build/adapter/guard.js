// Calls the project's handler and answers "done" only if it did its work. The promise of the handler is
// the outcome; work that it started and that still runs is run to its end first, and what nothing can
// settle any more is dropped. Knows the contract and no project.

import { forget, Native, rejections, stillWaiting, whenQuiet } from "./promises.js";

const SHAPES = { handler: "handle(message) { ... }", batchHandler: "handle(messages) { ... }" };

const STUCK =
  "a promise that it waits for is never settled: no call of the host and no timer is under way";

/** Attempts under way in this instance. */
let running = 0;

function show(value) {
  if (typeof value === "string") return JSON.stringify(value);
  if (value instanceof Error) {
    // Errors of some packages do not begin with their name.
    const text = String(value);
    return text.startsWith(value.name) ? text : `${value.name}: ${text}`;
  }
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    // It holds itself, or a BigInt.
    return Object.prototype.toString.call(value);
  }
}

const inOneLine = (text) => text.trim().replace(/\s+/g, " ");

const isThenable = (value) =>
  value !== null && typeof value === "object" && typeof value.then === "function";

/** What a handler returned, as the host takes it. */
function told(answer, contract) {
  if (!Array.isArray(answer)) return answer;
  return answer.map((one) => ({ id: one.id, failure: contract.failure(one.failure) }));
}

/** Logs the text and returns the exception that ends the attempt. The engine prints that as well. */
function broken(text) {
  console.error(text.trimEnd());
  return Object.assign(new Error(inOneLine(text)), { stack: "" });
}

function uncaught(thrown, contract) {
  if (thrown instanceof Error) return unhandled(`uncaught ${show(thrown)}`, contract, thrown);
  return unhandled(
    `the handler threw ${show(thrown)}; wanted an Error or a failure: new Reject("why"), new Retry(), or ` +
      `{ tag: "retry", val: null or milliseconds }, { tag: "reject", val: "why" }, ` +
      `{ tag: "busy", val: { after, reason } }, { tag: "closed", val: "why" }`,
    contract,
  );
}

/** The most characters of a reason. */
const MOST_REASON = 1000;

/** Logs the text as one record, with the stack of an error and of its causes, and returns what ends the
 * attempt: a retry with that text as its reason, which a dead letter has then. */
function unhandled(text, contract, error) {
  const causes = [];
  for (let cause = error?.cause; cause !== undefined && causes.length < 5; cause = cause?.cause) {
    causes.push(`; caused by ${show(cause)}`);
  }
  contract.logFailure(text.trimEnd() + causes.join(""), error);
  return { tag: "retry", val: { after: null, reason: inOneLine(text).slice(0, MOST_REASON) } };
}

/** Why the attempt is not done although the handler has returned; undefined if it is. Promises that wait
 * are no reason: every call of the host has been answered, so nothing settles them any more. */
function leftBehind(canWait, hadTimers) {
  const reasons = rejections();
  if (reasons.length > 0) {
    const more = reasons.length > 1 ? ` (and ${reasons.length - 1} more)` : "";
    return broken(`a promise that nobody awaits was rejected${more}: ${show(reasons[0])}`);
  }
  // Other attempts in this instance may rightly wait.
  if (running > 1) return undefined;
  if (canWait && !hadTimers && stillWaiting() > 0) {
    return broken(
      "the handler returned while something may still be under way: await what an import of its own " +
        "answers later",
    );
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
      typeof one?.id === "string" && contract.failure(one.failure) !== undefined;
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
    if (running > 1 || !contract.isCalling()) callback();
    else contract.whenAnswered(() => whenAnswered(contract, callback));
  });
}

/** The same, when no timer is left either. */
function whenIdle(contract, callback) {
  whenQuiet(() => {
    if (running > 1 || !contract.isWaiting()) callback();
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
      // Other attempts in this instance may have timers.
      const dropTimers = () => running === 1 && contract.dropTimers();
      // At once: on a busy machine a timer may be due by now, and would run in some attempts only.
      const hadTimers = dropTimers();
      whenAnswered(contract, () => {
        // Calls that were awaited may have set more.
        settle(dropTimers() || hadTimers);
        running -= 1;
      });
    };
    const threw = (thrown) =>
      end(() => {
        reject(contract.failure(thrown) ?? uncaught(thrown, contract));
      });
    const returned = (answer) =>
      end((hadTimers) => {
        const wrong = leftBehind(canWait, hadTimers) ?? check(answer, contract);
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

/** The export, or an error that ends the build. `contract` is the SDK's part of it. */
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
  const handle = (argument) =>
    attempt(() => found.handle(contract.argument(argument)), CHECKS[name], canWait, contract);
  return { handle };
}
