// Stacks by the files of the project. A component holds one bundle of all modules, and a table of the places
// in their sources, which `dispatcher plugin build` puts into it.

/** Set by the bundle: `sources`, and `lines`, a text with one line for each line of the bundle. Such a line has
 * parts that begin at a column, as `column:source:line:column`, or `column:source:line` in packages. */
const SOURCES = Symbol.for("dispatcher.sources");
/** The most frames of a stack that are shown. */
const MOST_FRAMES = 12;

let bundleLines;

/** The place in the sources of a place in the bundle; undefined for one of no source. */
function original(line, column) {
  const table = globalThis[SOURCES];
  bundleLines ??= table?.lines.split("\n");
  const parts = bundleLines?.[line - 1]?.split(",").filter((part) => Number.parseInt(part, 10) < column);
  const part = parts?.at(-1);
  if (!part) return undefined;
  const [, source, ...place] = part.split(":");
  return [table.sources[source], ...place].join(":");
}

/** A frame of the project or a package, as `price (src/price.ts:8:42)`; undefined for any other. */
function frame(text) {
  const found = /^\s*at (?:(.*?) \()?(.*?):(\d+):(\d+)\)?$/.exec(text);
  if (found === null) return undefined;
  const [, name, , line, column] = found;
  const place = original(Number(line), Number(column));
  if (place === undefined) return undefined;
  return name === undefined || name === "<anonymous>" ? place : `${name} (${place})`;
}

/** The stack of an error in one line, the innermost frame first; empty if it has none. */
export function stackOf(error) {
  const lines = typeof error?.stack === "string" ? error.stack.split("\n") : [];
  const frames = lines.map(frame).filter((one) => one !== undefined);
  return frames.slice(0, MOST_FRAMES).join(" ← ");
}
