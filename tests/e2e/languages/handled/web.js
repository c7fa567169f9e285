// What a handler in JavaScript may use of the web; the body names a case and what it works on.

import { Busy, Closed, Reject, Retry, count, log, send } from "dispatcher-guest";
import { produce } from "immer";
import { nanoid } from "nanoid";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const say = (value) => {
  throw new Reject(JSON.stringify(value));
};

const cases = {
  locales() {
    const date = new Date(Date.UTC(2026, 10, 28, 13, 5));
    const number = (1234567.5).toLocaleString("de-DE");
    say([typeof Intl, number, date.toLocaleDateString("de-DE"), date.getTimezoneOffset(), "I".toLocaleLowerCase("tr")]);
  },
  async get(url) {
    const response = await fetch(url);
    const { status, ok, redirected, headers } = response;
    say([status, ok, redirected, new URL(response.url).pathname, headers.get("Content-Type"), await response.text()]);
  },
  async post(url) {
    const body = JSON.stringify({ amount: 250 });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(new URL("/echo", url), { method: "post", body, headers });
    say([response.status, await response.text()]);
  },
  async both(url) {
    const [one, other] = await Promise.all([fetch(url), fetch(url)]);
    say([one.status, other.status]);
  },
  async failing(url) {
    try {
      await fetch(url);
    } catch (error) {
      say([error.name, error.code, error.message]);
    }
  },
  async timeout(url) {
    try {
      await fetch(url, { signal: AbortSignal.timeout(50) });
    } catch (error) {
      say([error.name]);
    }
  },
  // A call with retry on 5xx.
  async retried(url) {
    for (let attempt = 1; ; attempt++) {
      const response = await fetch(url);
      if (response.status < 500) say([attempt, response.status]);
      if (attempt === 3) throw new Retry({ afterMs: 7000, reason: `the API answered ${response.status}` });
      await sleep(10);
    }
  },
  async timers() {
    const out = [];
    clearTimeout(setTimeout(() => out.push("never"), 1));
    setTimeout((text) => out.push(text), 40, "second");
    await sleep(10);
    out.push("first");
    await sleep(60);
    await new Promise((resolve) => {
      const id = setInterval(() => {
        if (out.push("tick") < 5) return;
        clearInterval(id);
        resolve();
      }, 5);
    });
    say(out);
  },
  // The slower of them is dropped.
  async race() {
    await Promise.race([sleep(5), sleep(3_600_000)]);
    console.log("the race is over");
  },
  async rejectedLater() {
    await sleep(5);
    Promise.reject(new Error("unheard"));
    await sleep(5);
  },
  url() {
    const url = new URL("../b?x=1#h", "https://example.com:8443/a/c/");
    url.searchParams.append("y", "é");
    say([url.href, url.host, URL.canParse("no")]);
  },
  text() {
    const bytes = new TextEncoder().encode("a€𝄞");
    say([bytes.length, new TextDecoder().decode(bytes), new TextDecoder().decode(new Uint8Array([255, 97])), atob(btoa("hi"))]);
  },
  async crypto() {
    const bytes = new TextEncoder().encode("abc");
    const digests = await Promise.all(["SHA-1", "SHA-256"].map((name) => crypto.subtle.digest(name, bytes)));
    say([...digests.map((one) => hex(one).slice(0, 8)), crypto.randomUUID().length, crypto.randomUUID() === crypto.randomUUID()]);
  },
  levels() {
    console.debug("looked");
    console.log("printed", { a: 1 });
    console.warn("warned");
    log("error", "logged", { order: "o-1" });
  },
  measured() {
    count("orders", { by: 2, kind: "new" });
  },
  async sent() {
    await send("local:later", { id: "o-1" }, { delayMs: 3_600_000, attributes: { kind: "reminder" } });
  },
  async notSent() {
    try {
      await send("local:other", "x");
    } catch (error) {
      say([error.name, error.code]);
    }
  },
  message(_, message) {
    say([message.attempt, message.idempotencyKey.length, message.attributes, message.extend(60_000) > 50_000]);
  },
  packaged() {
    say([nanoid().length, produce({ amount: 1 }, (draft) => void (draft.amount = 250))]);
  },
  busy() {
    throw new Busy("full", { afterMs: 5 });
  },
  closed() {
    throw new Closed("no key");
  },
};

export const handler = {
  async handle(message) {
    const [name, ...rest] = message.body.split(" ");
    await cases[name](rest[0], message);
  },
};
