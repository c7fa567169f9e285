// `TextEncoder` and `TextDecoder` for UTF-8.

export class TextEncoder {
  get encoding() {
    return "utf-8";
  }

  encode(text = "") {
    const sound = String(text).toWellFormed();
    const bytes = new Uint8Array(sound.length * 3);
    let length = 0;
    const put = (byte) => {
      bytes[length++] = byte;
    };
    for (let at = 0; at < sound.length; at++) {
      const point = sound.codePointAt(at);
      if (point < 0x80) put(point);
      else if (point < 0x800) {
        put(0xc0 | (point >> 6));
        put(0x80 | (point & 0x3f));
      } else if (point < 0x10000) {
        put(0xe0 | (point >> 12));
        put(0x80 | ((point >> 6) & 0x3f));
        put(0x80 | (point & 0x3f));
      } else {
        put(0xf0 | (point >> 18));
        put(0x80 | ((point >> 12) & 0x3f));
        put(0x80 | ((point >> 6) & 0x3f));
        put(0x80 | (point & 0x3f));
        at++;
      }
    }
    return bytes.slice(0, length);
  }

  encodeInto(text, into) {
    let read = 0;
    let written = 0;
    for (const letter of String(text).toWellFormed()) {
      const bytes = this.encode(letter);
      if (written + bytes.length > into.length) break;
      into.set(bytes, written);
      written += bytes.length;
      read += letter.length;
    }
    return { read, written };
  }
}

/** Returns the code point at an offset and its number of bytes. If the bytes are not valid, returns
 * undefined and the number of bytes to skip. */
function point(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return [first, 1];
  let [more, low, high] = [0, 0x80, 0xbf];
  let value;
  if (first >= 0xc2 && first <= 0xdf) [more, value] = [1, first & 0x1f];
  else if (first >= 0xe0 && first <= 0xef) {
    [more, value] = [2, first & 0x0f];
    if (first === 0xe0) low = 0xa0;
    if (first === 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    [more, value] = [3, first & 0x07];
    if (first === 0xf0) low = 0x90;
    if (first === 0xf4) high = 0x8f;
  } else return [undefined, 1];
  for (let next = 1; next <= more; next++) {
    const byte = bytes[at + next];
    if (byte === undefined || byte < low || byte > high) return [undefined, next];
    [low, high] = [0x80, 0xbf];
    value = (value << 6) | (byte & 0x3f);
  }
  return [value, more + 1];
}

export class TextDecoder {
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    const name = String(label).trim().toLowerCase();
    if (!["utf-8", "utf8", "unicode-1-1-utf-8"].includes(name)) {
      throw new RangeError(`TextDecoder: ${label}: this engine knows UTF-8 alone`);
    }
    this.encoding = "utf-8";
    this.fatal = fatal;
    this.ignoreBOM = ignoreBOM;
  }

  decode(input, { stream = false } = {}) {
    if (stream) throw new TypeError("TextDecoder: there are no streams");
    if (input === undefined) return "";
    const bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    const parts = [];
    let text = "";
    let at = 0;
    if (!this.ignoreBOM && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) at = 3;
    while (at < bytes.length) {
      const [value, length] = point(bytes, at);
      if (value === undefined && this.fatal) throw new TypeError("TextDecoder: this is not UTF-8");
      text += value === undefined ? "\ufffd" : String.fromCodePoint(value);
      at += length;
      if (text.length > 4096) {
        parts.push(text);
        text = "";
      }
    }
    parts.push(text);
    return parts.join("");
  }
}
