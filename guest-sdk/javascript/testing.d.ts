// Tests of handlers in Node.js, without WebAssembly.

import type { Handler, Message } from "./index.js";

/** What handlers asked of the fake. */
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
  /** By name and labels: `orders kind=new`. */
  counts: Record<string, number>;
  gauges: Record<string, number>;
  /** Ids of messages whose attempts are over. */
  cancelled: Set<string>;
  /** The values of each granted store. */
  stores: Record<string, Map<string, Uint8Array>>;
}

/** Stands for the dispatcher until the next one. Without `http` no host is granted. */
export declare function fakeHost(grants?: {
  http?: (request: Request) => Response | Promise<Response>;
  queues?: string[];
  stores?: string[];
  settings?: Record<string, string>;
  maxTimeoutMs?: number;
}): Told;

/** A message for a test, from `local:default`; what is neither text nor bytes is JSON. */
export declare function message(body: unknown, more?: Partial<Omit<Message, "json" | "extend" | "timeLeftMs" | "cancelled">>): Message;

export type Outcome =
  | { done: true }
  | { reject: string }
  | { closed: string }
  | { retry: { afterMs: number | null; reason: string | null } }
  | { busy: { afterMs: number | null; reason: string } };

/** Runs a handler on a message, or on one of this body: what became of it. Throws what it throws else. */
export declare function run(handler: Handler, message: Message | string): Promise<Outcome>;

export { Response };
