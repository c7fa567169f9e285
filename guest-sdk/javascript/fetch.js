// `fetch`, based on the requests of the contract (`dispatcher:plugin/http`). A body is text or
// bytes, not a stream. The dispatcher checks the host of every request, including those after a
// redirect.

import { errorOf, need, track } from "./host.js";

const MOST_REDIRECTS = 20;

export class Headers {
  #entries = [];

  constructor(init) {
    if (init === undefined || init === null) return;
    const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
    for (const [name, value] of pairs) this.append(name, value);
  }

  append(name, value) {
    this.#entries.push([String(name).toLowerCase(), String(value).trim()]);
  }

  delete(name) {
    const wanted = String(name).toLowerCase();
    this.#entries = this.#entries.filter(([found]) => found !== wanted);
  }

  set(name, value) {
    this.delete(name);
    this.append(name, value);
  }

  get(name) {
    const wanted = String(name).toLowerCase();
    const values = this.#entries.filter(([found]) => found === wanted).map(([, value]) => value);
    return values.length > 0 ? values.join(", ") : null;
  }

  has(name) {
    return this.get(name) !== null;
  }

  getSetCookie() {
    return this.#entries.filter(([name]) => name === "set-cookie").map(([, value]) => value);
  }

  forEach(callback, self) {
    for (const [name, value] of this) callback.call(self, value, name, this);
  }

  *entries() {
    const names = [...new Set(this.#entries.map(([name]) => name))].sort();
    for (const name of names) {
      if (name === "set-cookie") for (const value of this.getSetCookie()) yield [name, value];
      else yield [name, this.get(name)];
    }
  }

  *keys() {
    for (const [name] of this) yield name;
  }

  *values() {
    for (const [, value] of this) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }
}

/** Returns a body as bytes and the content type that its class implies; undefined if there is no
 * body. */
function bodyOf(body) {
  if (body === undefined || body === null) return undefined;
  if (typeof body === "string") {
    return { bytes: new TextEncoder().encode(body), type: "text/plain;charset=UTF-8" };
  }
  if (body instanceof URLSearchParams) {
    const type = "application/x-www-form-urlencoded;charset=UTF-8";
    return { bytes: new TextEncoder().encode(body.toString()), type };
  }
  if (body instanceof ArrayBuffer) return { bytes: new Uint8Array(body.slice(0)) };
  if (ArrayBuffer.isView(body)) {
    return { bytes: new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice() };
  }
  throw new TypeError(
    "the body of a request: wanted text, URLSearchParams, an ArrayBuffer or a view of one; " +
      "there are no streams, forms and blobs",
  );
}

export class Body {
  #bytes;
  #isUsed = false;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  get bodyUsed() {
    return this.#isUsed;
  }

  async bytes() {
    if (this.#isUsed) throw new TypeError("the body was read before");
    this.#isUsed = this.#bytes !== undefined;
    return this.#bytes ?? new Uint8Array();
  }

  async arrayBuffer() {
    return (await this.bytes()).slice().buffer;
  }

  async text() {
    return new TextDecoder().decode(await this.bytes());
  }

  async json() {
    return JSON.parse(await this.text());
  }

  /** Returns the bytes of a body for a copy, without marking the body as used. */
  static of(body) {
    if (body.#isUsed) throw new TypeError("the body was read before");
    return body.#bytes;
  }
}

const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];

export class Request extends Body {
  constructor(input, init = {}) {
    const from = input instanceof Request ? input : undefined;
    const body = bodyOf(init.body);
    super(body?.bytes ?? (from && Body.of(from)));
    // `URL` parses, checks and normalizes the address.
    this.url = new URL(from ? from.url : String(input)).href;
    const method = String(init.method ?? from?.method ?? "GET");
    this.method = METHODS.includes(method.toUpperCase()) ? method.toUpperCase() : method;
    if (body && (this.method === "GET" || this.method === "HEAD")) {
      throw new TypeError(`a request with ${this.method} has no body`);
    }
    this.headers = new Headers(init.headers ?? from?.headers);
    if (body?.type && !this.headers.has("content-type")) this.headers.set("content-type", body.type);
    this.redirect = init.redirect ?? from?.redirect ?? "follow";
    this.signal = init.signal ?? from?.signal ?? null;
  }

  clone() {
    return new Request(this);
  }
}

export class Response extends Body {
  constructor(body, init = {}) {
    const given = bodyOf(body);
    super(given?.bytes);
    this.status = init.status ?? 200;
    this.statusText = init.statusText ?? "";
    this.headers = new Headers(init.headers);
    if (given?.type && !this.headers.has("content-type")) this.headers.set("content-type", given.type);
    this.url = init.url ?? "";
    this.redirected = init.redirected ?? false;
    this.type = "default";
  }

  static json(value, init = {}) {
    const headers = new Headers(init.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(JSON.stringify(value), { ...init, headers });
  }

  get ok() {
    return this.status >= 200 && this.status <= 299;
  }

  clone() {
    return new Response(Body.of(this), this);
  }
}

/** Returns the exception for a request without a response: a TypeError, as in browsers, whose
 * `code` is the reason, with the stack of the call. */
function failed({ tag, val }, stack) {
  const why = tag === "too-large" ? `the response has more than ${val} bytes` : val;
  const name = tag.toUpperCase().replaceAll("-", "_");
  return Object.assign(new TypeError(`fetch failed: ${why}`), { code: name, stack });
}

/** Calls back when the signal aborts. Returns a function that removes the callback. */
function follow(signal, callback) {
  if (typeof signal.follow === "function") return signal.follow(callback);
  // In a test, the signal may be one of Node.js.
  signal.addEventListener("abort", callback);
  return () => signal.removeEventListener("abort", callback);
}

/** Resolves to the response, or rejects if the signal aborts first. Removes its callback after
 * either. */
function unlessAborted(answer, signal) {
  return new Promise((resolve, reject) => {
    const forget = follow(signal, () => {
      forget();
      reject(signal.reason);
    });
    answer.then(resolve, reject).then(forget);
  });
}

async function exchange(request, bytes) {
  const { signal } = request;
  signal?.throwIfAborted();
  const timeout = signal?.timeLeftMs ?? null;
  const sending = (async () =>
    need("http").send({
      method: request.method,
      url: request.url,
      headers: [...request.headers],
      body: bytes ?? new Uint8Array(),
      timeout,
      maxBody: null,
      truncate: false,
    }))();
  const answer = track(sending);
  if (!signal) return answer;
  try {
    return await unlessAborted(answer, signal);
  } catch (error) {
    if (errorOf(error)?.tag !== "timed-out" || timeout === null) throw error;
    // The host limits the time of AbortSignal.timeout.
    signal.timeOut();
    throw signal.reason;
  }
}

const isRedirect = (status) => [301, 302, 303, 307, 308].includes(status);

/** Returns the request that follows a redirect, and its body. */
function following(request, bytes, status, location) {
  const to = new URL(location, request.url);
  const from = new URL(request.url);
  const headers = new Headers(request.headers);
  if (to.origin !== from.origin) {
    for (const name of ["authorization", "cookie"]) headers.delete(name);
  }
  const { redirect, signal } = request;
  const isPost = request.method === "POST" && (status === 301 || status === 302);
  const isRead = request.method === "GET" || request.method === "HEAD";
  if (isPost || (status === 303 && !isRead)) {
    for (const name of ["content-type", "content-encoding", "content-language"]) headers.delete(name);
    return [new Request(to, { headers, redirect, signal }), undefined];
  }
  return [new Request(to, { method: request.method, headers, redirect, signal }), bytes];
}

export async function fetch(input, init) {
  // When the request fails, nothing of the call is left on the stack.
  const { stack } = new Error();
  let request = new Request(input, init);
  let bytes = Body.of(request);
  for (let redirects = 0; ; redirects++) {
    let answer;
    try {
      answer = await exchange(request, bytes);
    } catch (error) {
      const known = errorOf(error);
      throw known === undefined ? error : failed(known, stack);
    }
    const headers = new Headers(answer.headers);
    const location = headers.get("location");
    if (!isRedirect(answer.status) || location === null || request.redirect === "manual") {
      const { status } = answer;
      const url = request.url;
      const response = new Response(answer.body, { status, headers, url, redirected: redirects > 0 });
      return response;
    }
    if (request.redirect === "error") throw new TypeError(`fetch failed: redirected to ${location}`);
    if (redirects === MOST_REDIRECTS) throw new TypeError("fetch failed: too many redirects");
    [request, bytes] = following(request, bytes, answer.status, location);
  }
}
