// Stacks by the files of the project. A component holds one bundle of all modules, and the bundle's
// source map, which `dispatcher plugin build` puts into it.

import { TraceMap, originalPositionFor } from "@jridgewell/trace-mapping";

/** Set by the bundle. */
const MAP = Symbol.for("dispatcher.sourcemap");
/** The most frames of a stack that are shown. */
const MOST_FRAMES = 12;

let map;

function original(line, column) {
  const text = globalThis[MAP];
  if (text === undefined) return undefined;
  map ??= new TraceMap(text);
  const { source, line: at, column: from } = originalPositionFor(map, { line, column: column - 1 });
  return source === null ? undefined : { source, line: at, column: from + 1 };
}

/** A frame of the project or a package, as `price (src/price.ts:8:42)`; undefined for any other. */
function frame(text) {
  const found = /^\s*at (?:(.*?) \()?(.*?):(\d+):(\d+)\)?$/.exec(text);
  if (found === null) return undefined;
  const [, name, , line, column] = found;
  const at = original(Number(line), Number(column));
  if (at === undefined || at.source.startsWith("build/adapter/") || at.source.startsWith("dispatcher-guest/")) {
    return undefined;
  }
  const place = `${at.source}:${at.line}:${at.column}`;
  return name === undefined || name === "<anonymous>" ? place : `${name} (${place})`;
}

/** The stack of an error in one line, the innermost frame first; empty if it has none. */
export function stackOf(error) {
  const lines = typeof error?.stack === "string" ? error.stack.split("\n") : [];
  const frames = lines.map(frame).filter((one) => one !== undefined);
  return frames.slice(0, MOST_FRAMES).join(" ← ");
}
