// Runs every handler of `handler.js` by the fake of the SDK, as tests of a project do, and prints what
// became of each, and how many requests and messages it sent.

import { Response, fakeHost, message, run } from "dispatcher-guest/testing";
import { cases, handler } from "./handler.js";

const pause = () => new Promise((resolve) => setTimeout(resolve, 1));
const never = () => new Promise(() => {});
// At once, later by the SDK's class, and later by that of Node.js.
const ways = [
  () => new Response("good"),
  async () => (await pause(), new Response("good")),
  async () => (await pause(), new globalThis.Response("good")),
];

const all = {};
for (const name of Object.keys(cases)) {
  all[name] = [];
  for (const answer of ways) {
    const http = (request) => (request.url.endsWith("/slow") ? never() : answer());
    const host = fakeHost({ http, queues: ["local:sent"] });
    let outcome;
    try {
      outcome = await run(handler, message(`${name} http://api.test/${name} 50`));
    } catch (error) {
      outcome = { failed: String(error) };
    }
    all[name].push({ outcome, requests: host.requests.length, sent: host.sent.length });
  }
}
console.log(JSON.stringify(all));
