// `crypto`, with random values from the host and digests from @noble/hashes.

import { sha1 } from "@noble/hashes/legacy.js";
import { sha256, sha384, sha512 } from "@noble/hashes/sha2.js";
import { need } from "./host.js";

const DIGESTS = { "SHA-1": sha1, "SHA-256": sha256, "SHA-384": sha384, "SHA-512": sha512 };
/** The limit of the Web Cryptography standard, in bytes. */
const MOST_RANDOM = 65_536;

const bytesOf = (data) =>
  ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);

const random = (length) => need("random").getRandomBytes(length);

export const crypto = {
  getRandomValues(into) {
    const bytes = bytesOf(into);
    if (bytes.length > MOST_RANDOM) {
      throw new RangeError(`crypto.getRandomValues: at most ${MOST_RANDOM} bytes`);
    }
    bytes.set(random(bytes.length));
    return into;
  },

  randomUUID() {
    const bytes = random(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const parts = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)];
    return parts.join("-");
  },

  subtle: {
    async digest(algorithm, data) {
      const name = String(algorithm?.name ?? algorithm).toUpperCase();
      const digest = DIGESTS[name];
      if (digest === undefined) {
        throw new TypeError(`crypto.subtle.digest: ${name}: wanted ${Object.keys(DIGESTS).join(", ")}`);
      }
      return digest(bytesOf(data)).slice().buffer;
    },
  },
};

/** Returns a random number with 53 bits, the precision of a number. The engine's own generator
 * gives the same numbers in every instance. */
export function randomNumber() {
  const bytes = random(7);
  bytes[0] &= 0x1f;
  return bytes.reduce((sum, byte) => sum * 256 + byte, 0) / 2 ** 53;
}
