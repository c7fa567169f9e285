/// <reference path="./globals.d.ts" />
// What a handler works with. Every time is in milliseconds, every date since the Unix epoch.

/** What a plugin exports as `handler`. */
export interface Handler {
  /**
   * Called once per attempt. To return without a value is done; to throw is a failure. What it returns
   * is awaited. A value that is returned, and a promise that is rejected while nobody awaits it, fail
   * the attempt.
   */
  handle(message: Message): void | Promise<void>;
}

/** What a plugin of batches exports as `batchHandler`. */
export interface BatchHandler {
  /** The messages that failed; the others are done. */
  handle(messages: Message[]): Failed[] | Promise<Failed[]>;
}

/** One message of a batch that is not done. */
export interface Failed {
  id: string;
  failure: Reject | Retry | Busy | Closed;
}

/** One delivery of one message. */
export declare class Message {
  private constructor();
  /** The backend's id of the message; the same on every redelivery. */
  readonly id: string;
  /** The queue's name as the configuration writes it, without its weight: `local:default`. */
  readonly queue: string;
  /** The payload: text, or bytes where it is none. */
  readonly body: string | Uint8Array;
  /** Where the message came from: an ARN, or the backend's own name for the queue. */
  readonly source: string;
  /** The token of this delivery. For display: the host settles. */
  readonly receipt: string;
  /** How often the message has been received, this time included. */
  readonly receiveCount: number;
  /** The number of this attempt at the message, from 1. */
  readonly attempt: number;
  /** The same for every attempt at this message and different for any other; 32 hexadecimal digits. */
  readonly idempotencyKey: string;
  /** The trace that the message belongs to, where its sender named one. */
  readonly trace: { traceparent: string; tracestate: string | null } | null;
  /** When this attempt is stopped and counted as timed out. */
  readonly deadline: number;
  readonly sentAt: number | null;
  readonly firstReceivedAt: number | null;
  /** The FIFO group, or the key the route groups by. */
  readonly group: string | null;
  /** The attributes that the sender set. */
  readonly attributes: Record<string, string | Uint8Array>;
  /** The backend's own attributes, named as the backend names them. */
  readonly systemAttributes: Record<string, string>;
  readonly bodyMd5: string | null;
  readonly attributesMd5: string | null;
  /** The body as JSON. A body that is none rejects the message with the reason. */
  json<T = unknown>(): T;
  /** How many milliseconds are left until the attempt is stopped. */
  readonly timeLeftMs: number;
  /** Whether what the handler answers no longer counts. */
  readonly cancelled: boolean;
  /**
   * Requests that the attempt may take so many milliseconds from now, which the plugin's `max-timeout`
   * limits. Returns how many it may.
   */
  extend(ms: number): number;
}

/** Never again: the message goes to the dead-letter queue with this reason. */
export declare class Reject extends Error {
  constructor(reason: string, options?: { cause?: unknown });
}

/** Again: after so many milliseconds, or by the route's policy. */
export declare class Retry extends Error {
  constructor(options?: { afterMs?: number; reason?: string; cause?: unknown });
  readonly afterMs: number | null;
}

/** Nothing was done, since something is busy: the dispatcher keeps the lease and tries again. */
export declare class Busy extends Error {
  constructor(reason: string, options?: { afterMs?: number });
  readonly afterMs: number | null;
}

/** Nothing was done, and no message will fare better until somebody acts. */
export declare class Closed extends Error {
  constructor(reason: string);
}

/** Why a message was not sent. */
export declare class SendError extends Error {
  readonly code: "forbidden" | "refused" | "unavailable";
}

/**
 * Sends a message to a queue that the configuration grants, and returns its id. What is neither text
 * nor bytes is sent as JSON. The world imports `dispatcher:plugin/queues@0.2.0-rc.1`.
 */
export declare function send(
  queue: string,
  body: unknown,
  options?: {
    /** How long until it may be received; of any length. */
    delayMs?: number;
    attributes?: Record<string, string | number | Uint8Array>;
    group?: string;
    deduplicationId?: string;
  },
): Promise<string>;

/** Why a function gave no answer. */
export declare class InvokeError extends Error {
  readonly code: "did-not-run" | "may-have-run" | "refused" | "permanent" | "forbidden" | "function-error";
  readonly retryAfterMs: number | null;
}

/**
 * Invokes a Lambda function that the configuration grants with an event in JSON, and returns its answer;
 * nothing without `wait`. The world imports `dispatcher:plugin/lambda@0.2.0-rc.1`.
 */
export declare function invoke<T = unknown>(name: string, event: unknown, options?: { wait?: boolean }): Promise<T>;

/** Logs a line with details. `console` does the same without details. */
export declare function log(
  level: "trace" | "debug" | "info" | "warn" | "error",
  text: string,
  fields?: Record<string, unknown>,
): void;

/**
 * Adds to a counter of the plugin's own, shown as `plugin_NAME_total`: 1, or `by`. The rest are labels.
 * The world imports `dispatcher:plugin/metrics@0.2.0-rc.1`.
 */
export declare function count(name: string, labels?: { by?: number; [label: string]: string | number | undefined }): void;

/** Sets a gauge of the plugin's own, shown as `plugin_NAME`. */
export declare function gauge(name: string, level: number, labels?: Record<string, string>): void;

/** Why a store or a setting was not read or written. */
export declare class StoreError extends Error {
  readonly code: "access-denied" | "failed";
}

/** Keys and their values, which are bytes. */
export interface Store {
  get(key: string): Uint8Array | undefined;
  text(key: string): string | undefined;
  set(key: string, value: string | Uint8Array): void;
  delete(key: string): void;
  has(key: string): boolean;
  /** All keys, in no order. */
  keys(): string[];
  /**
   * Adds to a number, from 0, in one step, and returns the sum. The world imports
   * `wasi:keyvalue/atomics@0.2.0-draft2`.
   */
  increment(key: string, by?: number): number;
}

/**
 * The store that the configuration grants by this name. The world imports
 * `wasi:keyvalue/store@0.2.0-draft2`.
 */
export declare function openStore(name: string): Store;

/**
 * The text that the configuration gives this name; undefined if there is none. The world imports
 * `wasi:config/store@0.2.0-rc.1`.
 */
export declare function setting(name: string): string | undefined;
