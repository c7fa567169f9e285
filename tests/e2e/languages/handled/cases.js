// Ways to end of which most do not handle the message; the body names one.

const later = async (work) => {
  await null;
  await null;
  return work();
};
const boom = () => {
  throw new Error("boom");
};
const never = () => new Promise(() => {});

export const cases = {
  done() {},
  async doneLater() { await later(() => console.log("worked later")); },
  doneByPromise: () => Promise.resolve(),
  async doneCaught() { try { await later(boom); } catch { /* as it wants */ } },
  async doneCaughtLate() { const work = later(boom); await later(() => {}); await work.catch(() => {}); },
  async doneAll() { await Promise.all([later(() => {}), later(() => {})]); },
  // Nobody awaits it, and it runs to its end all the same.
  doneUnawaited() { later(() => console.log("worked unawaited")); },
  // Nothing settles it any more, and the work is done.
  unawaitedNever() { later(never); },
  raceWithNever: () => Promise.race([later(() => {}), never()]),
  raceWithSleep: () => Promise.race([later(() => {}), new Promise((_, reject) => setTimeout(reject, 3_600_000))]),
  async signalNeverAborted() {
    const aborted = new Promise((_, reject) => new AbortController().signal.addEventListener("abort", reject));
    await Promise.race([later(() => {}), aborted]);
  },

  async retryLater() { await null; throw { tag: "retry", val: 5 }; },
  retryRounded() { throw { tag: "retry", val: 2.5 }; },
  retryByPolicy() { throw { tag: "retry" }; },
  async rejectLater() { await null; throw { tag: "reject", val: "no" }; },

  async asyncThrows() { await later(boom); },
  rejected: () => Promise.reject(new Error("rejected")),
  async allThrow() { await Promise.all([later(boom), later(boom)]); },
  unawaited() { later(boom); },
  async unawaitedInAsync() { later(boom); await null; },
  unawaitedChain() { later(() => 1).then(boom); },
  async never() { await never(); },
  throwsString() { throw "text"; },
  throwsNumber() { throw 7; },
  throwsUndefined() { throw undefined; },
  throwsNull() { throw null; },
  throwsObject() { throw { code: 1 }; },
  throwsError() { throw new TypeError("wrong"); },
  throwsBadRetry() { throw { tag: "retry", val: "soon" }; },
  throwsNegativeRetry() { throw { tag: "retry", val: -1 }; },
  throwsBadReject() { throw { tag: "reject", val: 7 }; },
  throwsPayload() { throw { payload: { tag: "reject", val: "hidden" } }; },
  returnsFailure: () => ({ tag: "reject", val: "no" }),
  returnsString: () => "ok",
  returnsFalse: () => false,
  returnsNull: () => null,
  returnsLater: () => later(() => "ok"),
  *generator() { yield 1; },
  async *asyncGenerator() { yield 1; },
  thenable: () => ({ then(resolve, reject) { reject(new Error("thenable")); } }),
  thenableNever: () => ({ then() {} }),
};
