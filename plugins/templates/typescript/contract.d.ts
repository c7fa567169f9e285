// The contract in wit/deps/dispatcher-plugin as componentize-qjs shows it to JavaScript. Every time
// is in milliseconds since the Unix epoch. What a module below lends must be named in
// wit/world.wit.

declare module "dispatcher:plugin/types@0.1.0" {
  /** One delivery of one message. */
  export interface Message {
    /** The backend's id of the message; the same on every redelivery. */
    id: string;
    /** The queue's name as the configuration writes it, without its weight: `local:default`. */
    queue: string;
    /** The payload, unaltered. */
    body: string;
    /** Where the message came from: an ARN, or the backend's own name for the queue. */
    source: string;
    /** The token of this delivery. For display: the host settles. */
    receipt: string;
    /** How often the message has been received, this time included. */
    receiveCount: number;
    /** When this attempt is stopped and counted as timed out. */
    deadline: number;
    /** When the sender's call was accepted, where the backend tells. */
    sentAt: number | null;
    /** When the message was received for the first time, where the backend tells. */
    firstReceivedAt: number | null;
    /** The FIFO group, or the key the route groups by. */
    group: string | null;
    /** The backend's own attributes, named as the backend names them. */
    systemAttributes: [name: string, value: string][];
    /** The attributes that the sender set. */
    attributes: Attribute[];
    /** MD5 of the body in hexadecimal, where the backend tells. */
    bodyMd5: string | null;
    /** MD5 of the sender's attributes in hexadecimal, where the backend tells. */
    attributesMd5: string | null;
  }

  /** One attribute of the sender's. */
  export interface Attribute {
    name: string;
    /** `String`, `Number` or `Binary`, with an optional custom suffix: `Number.float`. */
    dataType: string;
    value: { tag: "text"; val: string } | { tag: "binary"; val: Uint8Array };
  }

  /** Why a message is not done; to be thrown. */
  export type Failure =
    /** Again after so many milliseconds; null: as the route's policy says. */
    | { tag: "retry"; val: number | null }
    /** Never again, and why: the message goes to the dead-letter queue with this reason. */
    | { tag: "reject"; val: string }
    /** Nothing was done, since something is busy: the host keeps the lease and tries again. */
    | { tag: "busy"; val: { after: number | null; reason: string } }
    /** Nothing was done, and no message will fare better until somebody acts. */
    | { tag: "closed"; val: string };

  /** What a plugin exports as `handler`. */
  export interface Handler {
    /**
     * Called once per attempt. To return without a value is done; to throw is the failure. May be
     * `async`: what it returns is awaited. A value that is returned, and a promise that is rejected
     * while nobody awaits it, fail the attempt.
     */
    handle(message: Message): void | Promise<void>;
  }

  /** One message of a batch that is not done. */
  export interface Failed {
    id: string;
    failure: Failure;
  }

  /** What a plugin of batches exports as `batchHandler`. */
  export interface BatchHandler {
    /** The messages that failed; the others are done. */
    handle(messages: Message[]): Failed[] | Promise<Failed[]>;
  }
}

declare module "dispatcher:plugin/context@0.1.0" {
  const context: {
    /** Whether the attempt on this message is over, so that its answer no longer counts. */
    cancelled(messageId: string): boolean;
  };
  export default context;
}

declare module "dispatcher:plugin/queues@0.1.0" {
  import type { Attribute } from "dispatcher:plugin/types@0.1.0";
  export interface Outgoing {
    body: string;
    attributes: Attribute[];
    /** How many milliseconds to wait before it may be received; of any length. */
    delay: number;
    group: string | null;
  }
  /** What `send` throws. */
  export type SendError = { tag: "forbidden" | "refused" | "unavailable"; val: string };
  const queues: {
    /** Sends one message and returns its id. */
    send(queue: string, message: Outgoing): string;
  };
  export default queues;
}

declare module "dispatcher:plugin/lambda@0.1.0" {
  export interface Request {
    /** Name, `name:alias`, or ARN. */
    function: string;
    invocation: "request-response" | "event";
    /** The event, as JSON text. */
    payload: Uint8Array;
    logTail: boolean;
    /** When the caller's own time ends, such as the message's deadline. */
    deadline: number | null;
  }
  export interface Response {
    payload: Uint8Array;
    functionError: string | null;
    logTail: string | null;
    executedVersion: string | null;
  }
  /** What `invoke` throws. */
  export type InvokeError =
    | { tag: "did-not-run"; val: { reason: string; retryAfter: number | null } }
    | { tag: "may-have-run" | "refused" | "permanent" | "forbidden"; val: string };
  const lambda: {
    invoke(request: Request): Response;
  };
  export default lambda;
}

/** Of runtime.js: a line in the dispatcher's log. */
declare const console: Record<"log" | "info" | "debug" | "warn" | "error", (...values: unknown[]) => void>;
