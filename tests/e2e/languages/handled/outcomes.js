// Handlers by what becomes of their message, run by the host and by the fake of the SDK; the body names
// one, the API that it calls, and how long it waits for it: `/slow` never answers, any other path does.

import { Reject, Retry, send } from "dispatcher-guest";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const never = () => new Promise(() => {});
const HOUR_MS = 3_600_000;
const aborted = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
const fails = async () => {
  await null;
  throw new Error("boom");
};

export const cases = {
  // The work is done, and something is left that nothing settles any more.
  async withTimeout(api) { await fetch(api, { signal: AbortSignal.timeout(30_000) }); },
  async withController(api) { await fetch(api, { signal: new AbortController().signal }); },
  async withAny(api) {
    const signal = AbortSignal.any([new AbortController().signal, AbortSignal.timeout(30_000)]);
    const response = await fetch(new Request(api, { signal }));
    throw new Reject(await response.text());
  },
  async withTimerThatAborts(api) {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), HOUR_MS);
    await fetch(api, { signal: controller.signal });
  },
  async withClearedTimer(api) {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), HOUR_MS);
    try {
      await fetch(api, { signal: controller.signal });
    } finally {
      clearTimeout(timer);
    }
  },
  async raceWithNever(api) { await Promise.race([fetch(api), never()]); },
  async raceWithSleep(api) { await Promise.race([fetch(api), sleep(HOUR_MS)]); },
  async raceWithRejection(api) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("late")), HOUR_MS));
    await Promise.race([fetch(api), late]);
  },
  async raceOfRequests(api) { await Promise.race([fetch(`${api}/first`), fetch(`${api}/second`)]); },
  async anyOfRequests(api, ms) {
    const signal = AbortSignal.timeout(ms);
    const { url } = await Promise.any([fetch(`${api}/slow`, { signal }), fetch(`${api}/good`)]);
    throw new Reject(new URL(url).pathname.split("/").pop());
  },
  timer() { setTimeout(() => { throw new Error("dropped"); }, HOUR_MS); },
  interval() { setInterval(() => {}, 10); },
  neverAwaited() { fails().catch(never).then(() => {}); },
  async neverInWork(api) { (async () => { await fetch(api); await never(); await fetch(api); })(); },
  listener() { AbortSignal.timeout(HOUR_MS).addEventListener("abort", () => {}); },
  async bodyNotRead(api) { await fetch(api); },

  // Work that runs when the handler has ended is run to its end.
  unawaited(api) { fetch(api); },
  unawaitedChain(api) { fetch(`${api}/first`).then(() => fetch(`${api}/second`)); },
  sendUnawaited() { send("local:sent", "one"); },
  async sendInRace() { await Promise.race([send("local:sent", "another"), never()]); },
  async unawaitedAfterSleep(api) { (async () => { await sleep(HOUR_MS); await fetch(api); })(); },

  // Aborted requests.
  async abortedBefore(api) {
    const error = await fetch(api, { signal: AbortSignal.abort() }).catch((error) => error);
    throw new Reject(error.name);
  },
  async abortedAtOnce(api) {
    const controller = new AbortController();
    const response = fetch(api, { signal: controller.signal });
    controller.abort(new Error("enough"));
    throw new Reject((await response.catch((error) => error)).message);
  },
  async timedOut(api, ms) { await fetch(`${api}/slow`, { signal: AbortSignal.timeout(ms) }); },
  async timedOutCaught(api, ms) {
    const signal = AbortSignal.timeout(ms);
    const error = await fetch(`${api}/slow`, { signal }).catch((error) => error);
    throw new Reject(`${error.name} ${signal.aborted} ${error === signal.reason}`);
  },
  async timersWaitForRequests(api, ms) {
    const signal = AbortSignal.timeout(ms);
    const request = fetch(`${api}/slow`, { signal }).catch((error) => error.name);
    throw new Reject(await Promise.race([request, sleep(1).then(() => "slept")]));
  },
  async requestsInOrder(api, ms) {
    const signal = AbortSignal.timeout(ms);
    const slow = fetch(`${api}/slow`, { signal }).catch((error) => error.name);
    const good = fetch(`${api}/good`).then((response) => response.text());
    throw new Reject((await Promise.all([slow, good])).join(" "));
  },

  // Signals without a request.
  async abortEvent() {
    const signal = AbortSignal.timeout(20);
    await aborted(signal);
    throw new Reject(signal.reason.name);
  },
  async onabort() {
    const signal = AbortSignal.any([AbortSignal.timeout(20), new AbortController().signal]);
    await new Promise((resolve) => (signal.onabort = resolve));
    signal.throwIfAborted();
  },
  async abortByTimer() {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 5);
    await aborted(controller.signal);
  },

  // Nothing can settle the handler.
  never: () => never(),
  neverInRace: () => Promise.race([never(), never()]),
  async neverAborted() { await aborted(new AbortController().signal); },
  async neverAfterRequest(api) { await fetch(api); await never(); },
  async neverAfterTimer() { await sleep(5); await never(); },

  // Rejections that nobody awaits.
  unheard() { fails(); },
  async unheardOfRequest(api) { fetch(api, { signal: AbortSignal.abort(new Error("unheard")) }); },
  async heardLater() { const work = fails(); await sleep(10); await work.catch(() => {}); },
  async timerThrows() { setTimeout(() => { throw new Error("in a timer"); }, 1); await sleep(20); },
  timerThrowsAtOnce() { setTimeout(() => { throw new Error("in a timer"); }, 0); },
  microtaskThrows() { queueMicrotask(() => { throw new Error("in a microtask"); }); },
  async intervalOfThree() {
    const ticks = [];
    await new Promise((resolve) => {
      const id = setInterval(() => {
        if (ticks.push("tick") < 3) return;
        clearInterval(id);
        resolve();
      }, 2);
    });
    throw new Reject(ticks.join(" "));
  },

  // What the handler says.
  async retry() { throw new Retry({ afterMs: 1, reason: "later" }); },
  plainRetry() { throw { tag: "retry", val: 2.5 }; },
  plainReject() { throw { tag: "reject", val: "plain" }; },
  plainWrong() { throw { tag: "retry", val: "soon" }; },
  throwsText() { throw "text"; },
  async throwsError() { throw new TypeError("wrong"); },
  throwsAndLeaves() { fails(); throw new Reject("thrown"); },
  returnsText: async () => "ok",
  returnsNull: () => null,
  returnsGenerator: () => (function* () {})(),
  thenable: () => ({ then(resolve) { resolve(); } }),
  thenableRejected: () => ({ then(_, reject) { reject(new Error("thenable")); } }),
};

export const handler = {
  handle(message) {
    const [name, api, ms] = message.body.split(" ");
    return cases[name](api, Number(ms));
  },
};
