// The web APIs that a component provides. It provides no others. They are interfaces and variables,
// as in TypeScript's own library `dom`, so that a project can also have that library or the types of
// Node.js, which many packages refer to.

/** Types of Node.js leave the APIs of the web to a library that declares this. */
declare var onmessage: never;

interface Console {
  trace(...values: unknown[]): void;
  debug(...values: unknown[]): void;
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
  assert(is: unknown, ...values: unknown[]): void;
}

declare var console: Console;

type HeadersInit = Headers | Iterable<[string, string]> | Record<string, string>;
type BodyInit = string | URLSearchParams | ArrayBuffer | ArrayBufferView;

interface Headers extends Iterable<[string, string]> {
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  forEach(callback: (value: string, name: string, headers: Headers) => void): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

declare var Headers: {
  prototype: Headers;
  new (init?: HeadersInit): Headers;
};

interface RequestInit {
  method?: string;
  headers?: HeadersInit;
  body?: BodyInit | null;
  redirect?: "follow" | "manual" | "error";
  signal?: AbortSignal | null;
}

interface ResponseInit {
  status?: number;
  statusText?: string;
  headers?: HeadersInit;
}

interface Body {
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array>;
  json(): Promise<any>;
  text(): Promise<string>;
}

interface Request extends Body {
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  readonly redirect: string;
  readonly signal: AbortSignal | null;
  clone(): Request;
}

declare var Request: {
  prototype: Request;
  new (input: string | URL | Request, init?: RequestInit): Request;
};

interface Response extends Body {
  readonly status: number;
  readonly statusText: string;
  readonly ok: boolean;
  readonly headers: Headers;
  readonly url: string;
  readonly redirected: boolean;
  clone(): Response;
}

declare var Response: {
  prototype: Response;
  new (body?: BodyInit | null, init?: ResponseInit): Response;
  json(value: unknown, init?: ResponseInit): Response;
};

declare function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;

interface URLSearchParams extends Iterable<[string, string]> {
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  toString(): string;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

declare var URLSearchParams: {
  prototype: URLSearchParams;
  new (init?: string | Record<string, string> | Iterable<[string, string]>): URLSearchParams;
};

interface URL {
  hash: string;
  host: string;
  hostname: string;
  href: string;
  readonly origin: string;
  password: string;
  pathname: string;
  port: string;
  protocol: string;
  search: string;
  readonly searchParams: URLSearchParams;
  username: string;
  toString(): string;
  toJSON(): string;
}

declare var URL: {
  prototype: URL;
  new (url: string | URL, base?: string | URL): URL;
  canParse(url: string | URL, base?: string | URL): boolean;
};

interface TextEncoder {
  readonly encoding: string;
  encode(text?: string): Uint8Array;
  encodeInto(text: string, into: Uint8Array): { read: number; written: number };
}

declare var TextEncoder: {
  prototype: TextEncoder;
  new (): TextEncoder;
};

interface TextDecoder {
  decode(bytes?: ArrayBuffer | ArrayBufferView): string;
}

declare var TextDecoder: {
  prototype: TextDecoder;
  new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder;
};

interface AbortSignal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  onabort: ((event: { readonly type: "abort"; readonly target: AbortSignal }) => void) | null;
  addEventListener(type: "abort", listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

declare var AbortSignal: {
  prototype: AbortSignal;
  new (): AbortSignal;
  abort(reason?: unknown): AbortSignal;
  timeout(ms: number): AbortSignal;
  any(signals: Iterable<AbortSignal>): AbortSignal;
};

interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}

declare var AbortController: {
  prototype: AbortController;
  new (): AbortController;
};

interface SubtleCrypto {
  digest(algorithm: "SHA-1" | "SHA-256" | "SHA-384" | "SHA-512", data: ArrayBuffer | ArrayBufferView): Promise<ArrayBuffer>;
}

interface Crypto {
  getRandomValues<T extends ArrayBufferView>(into: T): T;
  randomUUID(): string;
  readonly subtle: SubtleCrypto;
}

declare var crypto: Crypto;

declare function setTimeout(callback: (...values: any[]) => void, ms?: number, ...values: unknown[]): number;
declare function setInterval(callback: (...values: any[]) => void, ms?: number, ...values: unknown[]): number;
declare function clearTimeout(id: number | undefined): void;
declare function clearInterval(id: number | undefined): void;
declare function queueMicrotask(callback: () => void): void;
declare function atob(text: string): string;
declare function btoa(text: string): string;
