// What the dispatcher provides, by the names of the contract's interfaces. In a component it is set
// before the handler is loaded, in a test by `fakeHost`. Knows no handler.

export const host = {};

/** Makes these the functions of the host. */
export function provide(interfaces) {
  for (const name of Object.keys(host)) delete host[name];
  Object.assign(host, interfaces);
}

/** The imports that provide an interface of another package. */
const WASI = {
  store: "wasi:keyvalue/store@0.2.0-draft2",
  atomics: "wasi:keyvalue/atomics@0.2.0-draft2",
  settings: "wasi:config/store@0.2.0-rc.1",
};

/** An interface of the host, or an error that says how to get it. */
export function need(name) {
  if (host[name] !== undefined) return host[name];
  throw new Error(
    `the handler uses ${name}, which its world does not import: name it in wit/world.wit, ` +
      `import ${WASI[name] ?? `dispatcher:plugin/${name}@0.2.0-rc.1`}; in a test, begin with fakeHost()`,
  );
}

/** Calls of the host that have not been answered. */
let pending = 0;
const waiting = [];

/** Awaits an answer of the host. While one is awaited the handler is not stuck. */
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

/** Calls back once, when no call of the host is unanswered any more. */
export function whenAnswered(callback) {
  if (pending > 0) waiting.push(callback);
  else callback();
}

/** The error of the contract that a call threw, `{ tag, val }`; undefined for any other exception. */
export function errorOf(thrown) {
  const error = thrown?.payload ?? thrown;
  return typeof error?.tag === "string" ? error : undefined;
}
