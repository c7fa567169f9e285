// What QuickJS lacks: `console`, of which every call is a line in the dispatcher's log, with the
// message's id; and a `Math.random` that is not the same in every instance, since all of them begin
// from the state in which the component was built. Import it first.

import random from "wasi:random/random@0.2.0";
import stderr from "wasi:cli/stderr@0.2.0";
import stdout from "wasi:cli/stdout@0.2.0";

// The most that one write may take.
const PIECE = 4096;

// The UTF-8 bytes of a text.
function encode(text) {
  const escaped = encodeURIComponent(text.toWellFormed());
  const bytes = [];
  for (let at = 0; at < escaped.length; at++) {
    if (escaped[at] === "%") {
      bytes.push(parseInt(escaped.slice(at + 1, at + 3), 16));
      at += 2;
    } else {
      bytes.push(escaped.charCodeAt(at));
    }
  }
  return new Uint8Array(bytes);
}

function show(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return value.stack ? `${value}\n${value.stack}` : String(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    // It holds itself, or a BigInt.
    return String(value);
  }
}

function print(stream, values) {
  const bytes = encode(`${values.map(show).join(" ")}\n`);
  for (let at = 0; at < bytes.length; at += PIECE) {
    stream.blockingWriteAndFlush(bytes.slice(at, at + PIECE));
  }
}

const out = (...values) => print(stdout.getStdout(), values);
const err = (...values) => print(stderr.getStderr(), values);

globalThis.console = { log: out, info: out, debug: out, warn: err, error: err };

// 53 bits, as many as a number holds.
Math.random = () => {
  const bytes = random.getRandomBytes(7);
  bytes[0] &= 0x1f;
  return bytes.reduce((sum, byte) => sum * 256 + byte, 0) / 2 ** 53;
};
