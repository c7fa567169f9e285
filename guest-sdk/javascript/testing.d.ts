// Runs handlers in tests with Node.js, without WebAssembly.

import type { BatchHandler, Handler, Message } from "./index.js";

/** The record of what handlers requested from the fake host. */
export interface Told {
  requests: Request[];
  sent: {
    queue: string;
    body: string | Uint8Array;
    attributes: Record<string, string | Uint8Array>;
    delayMs: number;
    group: string | null;
    deduplicationId: string | null;
  }[];
  logged: { level: string; text: string; fields: Record<string, string> }[];
  /** The counters by name and labels, such as `orders kind=new`. */
  counts: Record<string, number>;
  gauges: Record<string, number>;
  /** The IDs of the messages whose outcome the dispatcher ignores. A test adds them. */
  cancelled: Set<string>;
  /** The values of each granted store. */
  stores: Record<string, Map<string, Uint8Array>>;
}

/**
 * Replaces the dispatcher until the next call. Without `http`, no host is granted. Requests do not
 * overlap. A request whose response never arrives times out.
 */
export declare function fakeHost(grants?: {
  http?: (request: Request) => Response | Promise<Response>;
  queues?: string[];
  stores?: string[];
  settings?: Record<string, string>;
  maxTimeoutMs?: number;
}): Told;

/** Creates a message for a test, from `local:default`. A body that is not text or bytes becomes
 * JSON. */
export declare function message(body: unknown, more?: Partial<Omit<Message, "json" | "extend" | "timeLeftMs" | "cancelled">>): Message;

export type Outcome =
  | { done: true }
  | { reject: string }
  | { closed: string }
  | { retry: { afterMs: number | null; reason: string | null } }
  | { busy: { afterMs: number | null; reason: string } };

/**
 * Runs a handler on a message, or on a message with this body, and returns the outcome that the
 * dispatcher would get. Throws if the attempt fails for another reason: the handler threw another
 * exception or returned a value, a rejection was not awaited, a promise can never settle, or the
 * attempt ran out of time.
 */
export declare function run(handler: Handler, message: unknown): Promise<Outcome>;

/** Runs a handler of batches and returns the outcome of each message, in order. */
export declare function runBatch(handler: BatchHandler, messages: unknown[]): Promise<Outcome[]>;

type GlobalResponse = Response;
declare const GlobalResponse: typeof Response;
export { GlobalResponse as Response };
