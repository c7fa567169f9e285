/// <reference path="./globals.d.ts" />
// The API for handlers. Every time is in milliseconds, and every date counts from the Unix epoch.

/** The interface of the object that a plugin exports as `handler`. */
export interface Handler {
  /**
   * Handles a message. The dispatcher calls this once per attempt. If the function or its promise
   * ends without a value, the message is done. If it throws, the message has failed. Requests and
   * sends that still run at the end are completed; timers and promises that cannot settle any more
   * are dropped. The attempt fails if the function returns a value, or if a promise is rejected
   * that is not awaited.
   */
  handle(message: Message): void | Promise<void>;
}

/** The interface of the object that a plugin of batches exports as `batchHandler`. */
export interface BatchHandler {
  /** Handles a batch. Returns the messages that failed; the others are done. */
  handle(messages: Message[]): Failed[] | Promise<Failed[]>;
}

/** A message of a batch that failed. */
export interface Failed {
  id: string;
  failure: Reject | Retry | Busy | Closed;
}

/** One delivery of a message. */
export declare class Message {
  private constructor();
  /** The backend's ID of the message. It is the same on every redelivery. */
  readonly id: string;
  /** The queue's name as the configuration writes it, without the weight, such as
   * `local:default`. */
  readonly queue: string;
  /** The payload: text, or bytes if it is not text. */
  readonly body: string | Uint8Array;
  /** The source of the message: an ARN, or the backend's own name for the queue. */
  readonly source: string;
  /** The token of this delivery, for display only. */
  readonly receipt: string;
  /** The number of times that the message has been received, including this one. */
  readonly receiveCount: number;
  /** The number of this attempt at the message, from 1. */
  readonly attempt: number;
  /** A key of 32 hexadecimal digits that is the same for every attempt at this message only. */
  readonly idempotencyKey: string;
  /** The trace that the message belongs to, if its sender named one. */
  readonly trace: { traceparent: string; tracestate: string | null } | null;
  /** The date when this attempt is stopped and counted as timed out. */
  readonly deadline: number;
  readonly sentAt: number | null;
  readonly firstReceivedAt: number | null;
  /** The FIFO group, or the key that the route groups by. */
  readonly group: string | null;
  /** The attributes that the sender set. */
  readonly attributes: Record<string, string | Uint8Array>;
  /** The backend's attributes, with the backend's names. */
  readonly systemAttributes: Record<string, string>;
  readonly bodyMd5: string | null;
  readonly attributesMd5: string | null;
  /** Parses the body as JSON. If that fails, rejects the message with the reason. */
  json<T = unknown>(): T;
  /** The milliseconds until the attempt is stopped. */
  readonly timeLeftMs: number;
  /** Whether the dispatcher ignores the handler's outcome. */
  readonly cancelled: boolean;
  /**
   * Requests that the attempt may take this many milliseconds from now, up to the plugin's
   * `max-timeout`. Returns how many are granted.
   */
  extend(ms: number): number;
}

/** A failure that rejects the message. The message goes to the dead-letter queue with this reason
 * and is not tried again. */
export declare class Reject extends Error {
  constructor(reason: string, options?: { cause?: unknown });
}

/** A failure that retries the message after this many milliseconds, or by the route's policy. */
export declare class Retry extends Error {
  constructor(options?: { afterMs?: number; reason?: string; cause?: unknown });
  readonly afterMs: number | null;
}

/** A failure because something is busy. Nothing was done for the message. The dispatcher keeps the
 * lease and tries again. */
export declare class Busy extends Error {
  constructor(reason: string, options?: { afterMs?: number });
  readonly afterMs: number | null;
}

/** A failure of every message of the route until someone acts. Nothing was done for the message. */
export declare class Closed extends Error {
  constructor(reason: string);
}

/** The reason why a message was not sent. */
export declare class SendError extends Error {
  readonly code: "forbidden" | "refused" | "unavailable";
}

/**
 * Sends a message to a queue that the configuration grants, and returns its ID. A body that is not
 * text or bytes is sent as JSON. The world must import `dispatcher:plugin/queues@0.1.0`.
 */
export declare function send(
  queue: string,
  body: unknown,
  options?: {
    /** The delay before the message can be received. It can have any length. */
    delayMs?: number;
    attributes?: Record<string, string | number | Uint8Array>;
    group?: string;
    deduplicationId?: string;
  },
): Promise<string>;

/** The reason why an invocation failed. */
export declare class InvokeError extends Error {
  readonly code: "did-not-run" | "may-have-run" | "refused" | "permanent" | "forbidden" | "function-error";
  readonly retryAfterMs: number | null;
}

/**
 * Invokes a Lambda function that the configuration grants with an event in JSON, and returns its
 * response. Without `wait`, returns undefined. The world must import
 * `dispatcher:plugin/lambda@0.1.0`.
 */
export declare function invoke<T = unknown>(name: string, event: unknown, options?: { wait?: boolean }): Promise<T>;

/** Logs a line with fields. `console` logs lines without fields. */
export declare function log(
  level: "trace" | "debug" | "info" | "warn" | "error",
  text: string,
  fields?: Record<string, unknown>,
): void;

/**
 * Adds 1, or `by`, to a counter of the plugin. The other properties are labels. The metrics page
 * shows the counter as `plugin_NAME_total`. The world must import
 * `dispatcher:plugin/metrics@0.1.0`.
 */
export declare function count(name: string, labels?: { by?: number; [label: string]: string | number | undefined }): void;

/** Sets a gauge of the plugin. The metrics page shows it as `plugin_NAME`. */
export declare function gauge(name: string, level: number, labels?: Record<string, string>): void;

/** The reason why a call to a store or a setting failed. */
export declare class StoreError extends Error {
  readonly code: "access-denied" | "failed";
}

/** A key-value store. Values are bytes. */
export interface Store {
  get(key: string): Uint8Array | undefined;
  text(key: string): string | undefined;
  set(key: string, value: string | Uint8Array): void;
  delete(key: string): void;
  has(key: string): boolean;
  /** Returns all keys, in no particular order. */
  keys(): string[];
  /**
   * Adds to a number atomically and returns the sum. A missing number counts as 0. The world must
   * import `wasi:keyvalue/atomics@0.2.0-draft2`.
   */
  increment(key: string, by?: number): number;
}

/**
 * Opens the store that the configuration grants under this name. The world must import
 * `wasi:keyvalue/store@0.2.0-draft2`.
 */
export declare function openStore(name: string): Store;

/**
 * Returns the setting with this name; undefined if there is none. The world must import
 * `wasi:config/store@0.2.0-rc.1`.
 */
export declare function setting(name: string): string | undefined;
