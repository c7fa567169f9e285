// The interfaces that the dispatcher provides, by their names in the contract. A component sets
// them before it loads the handler; in a test, `fakeHost` sets them.

export const host = {};
let isProvided = false;

/** Replaces the interfaces of the host. */
export function provide(interfaces) {
  isProvided = true;
  for (const name of Object.keys(host)) delete host[name];
  Object.assign(host, interfaces);
}

/** The imports of the interfaces from other packages. */
const WASI = {
  store: "wasi:keyvalue/store@0.2.0-draft2",
  atomics: "wasi:keyvalue/atomics@0.2.0-draft2",
  settings: "wasi:config/store@0.2.0-rc.1",
  clock: "wasi:clocks/monotonic-clock@0.3.0",
  random: "wasi:random/random@0.2.0",
};

/** Returns an interface of the host. If it is missing, throws an error that says how to get it. */
export function need(name) {
  if (host[name] !== undefined) return host[name];
  if (!isProvided) {
    throw new Error(
      `${name} is used where a module is loaded, which is when the component is built: console, settings and ` +
        "all else of the dispatcher are there within `handle` only; in a test, begin with fakeHost()",
    );
  }
  throw new Error(
    `the handler uses ${name}, which its world does not import: add \`import ${WASI[name] ?? `dispatcher:plugin/${name}@0.1.0`};\` ` +
      "to wit/world.wit; in a test, begin with fakeHost()",
  );
}

/** The number of calls to the host that are still running. */
let pending = 0;
const waiting = [];

/** Awaits a response of the host. Meanwhile the handler does not count as stuck. */
export async function track(answer) {
  pending += 1;
  try {
    return await answer;
  } finally {
    pending -= 1;
    if (pending === 0) for (const wake of waiting.splice(0)) wake();
  }
}

export const isCalling = () => pending > 0;

/** Calls back once, when no call to the host is running. */
export function whenAnswered(callback) {
  if (pending > 0) waiting.push(callback);
  else callback();
}

/** Returns the error of the contract that a call threw, `{ tag, val }`; undefined for any other
 * exception. */
export function errorOf(thrown) {
  const error = thrown?.payload ?? thrown;
  return typeof error?.tag === "string" ? error : undefined;
}
