// From bytes to samples: formats that can be played while they come, and resampling.

const PCM_SCALE = 1 / 32768;

/** Whole 16-bit samples out of pieces that may end in the middle of one. */
class Pcm {
  #odd = null;

  push(bytes) {
    if (this.#odd !== null) {
      const joined = new Uint8Array(bytes.length + 1);
      joined[0] = this.#odd;
      joined.set(bytes, 1);
      bytes = joined;
    }
    const count = bytes.length >> 1;
    this.#odd = bytes.length % 2 ? bytes[bytes.length - 1] : null;
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const samples = new Float32Array(count);
    for (let at = 0; at < count; at += 1) samples[at] = view.getInt16(2 * at, true) * PCM_SCALE;
    return samples;
  }
}

/** PCM after a header of 44 bytes, as `protocol.md#audio` has it. */
class Wav {
  #left = 44;
  #pcm = new Pcm();

  push(bytes) {
    const skipped = Math.min(this.#left, bytes.length);
    this.#left -= skipped;
    return this.#pcm.push(bytes.subarray(skipped));
  }
}

/** One byte for each sample, by a table. */
class Table {
  #table;

  constructor(table) {
    this.#table = table;
  }

  push(bytes) {
    return Float32Array.from(bytes, (byte) => this.#table[byte]);
  }
}

/** ITU-T G.711, mu-law. */
function mulaw(code) {
  const bits = ~code & 0xff;
  const magnitude = ((((bits & 0x0f) << 3) + 0x84) << ((bits & 0x70) >> 4)) - 0x84;
  return (bits & 0x80 ? -magnitude : magnitude) * PCM_SCALE;
}

/** ITU-T G.711, A-law. */
function alaw(code) {
  const bits = code ^ 0x55;
  const exponent = (bits & 0x70) >> 4;
  const mantissa = (bits & 0x0f) << 4;
  const magnitude = exponent === 0 ? mantissa + 8 : (mantissa + 0x108) << (exponent - 1);
  return (bits & 0x80 ? magnitude : -magnitude) * PCM_SCALE;
}

const table = (decode) => Float32Array.from({ length: 256 }, (_, code) => decode(code));
const tables = new Map();

function tableOf(name, decode) {
  if (!tables.has(name)) tables.set(name, table(decode));
  return tables.get(name);
}

/** Something with `push(bytes) -> samples`; null for a format that only a whole file of decodes. */
export function decoderOf(format) {
  switch (format) {
    case "pcm_s16le":
      return new Pcm();
    case "wav":
      return new Wav();
    case "mulaw":
      return new Table(tableOf("mulaw", mulaw));
    case "alaw":
      return new Table(tableOf("alaw", alaw));
    default:
      return null;
  }
}

const REACH = 16; // Zero crossings of the kernel on each side.

/** A windowed-sinc resampler that is fed in pieces; how they are cut makes no difference. */
export class Resampler {
  #step;
  #cutoff;
  #reach;
  #held = new Float32Array(0);
  #heldAt = 0; // Which input sample `#held` begins with.
  #received = 0;
  #made = 0;
  #ended = false;

  constructor(from, to) {
    this.#step = from / to;
    this.#cutoff = Math.min(1, to / from) * 0.96;
    this.#reach = Math.ceil(REACH / this.#cutoff);
  }

  push(samples) {
    const joined = new Float32Array(this.#held.length + samples.length);
    joined.set(this.#held);
    joined.set(samples, this.#held.length);
    this.#held = joined;
    this.#received += samples.length;
    return this.#make();
  }

  /** The rest, when nothing more comes. */
  finish() {
    this.#ended = true;
    return this.#make();
  }

  #make() {
    const end = this.#ended ? this.#received : this.#received - this.#reach;
    const count = Math.max(0, Math.ceil(end / this.#step) - this.#made);
    const made = new Float32Array(count);
    for (let at = 0; at < count; at += 1) {
      made[at] = this.#sampleAt((this.#made + at) * this.#step);
    }
    this.#made += count;
    const keep = Math.max(0, Math.floor(this.#made * this.#step) - this.#reach - this.#heldAt);
    this.#held = this.#held.slice(keep);
    this.#heldAt += Math.min(keep, this.#received - this.#heldAt);
    return made;
  }

  #sampleAt(position) {
    const first = Math.max(this.#heldAt, Math.ceil(position - this.#reach));
    const last = Math.min(this.#received - 1, Math.floor(position + this.#reach));
    let sum = 0;
    for (let at = first; at <= last; at += 1) {
      const distance = at - position;
      const angle = Math.PI * distance * this.#cutoff;
      const sinc = angle === 0 ? 1 : Math.sin(angle) / angle;
      const window = Math.cos((Math.PI * distance) / (2 * (this.#reach + 1))) ** 2;
      sum += this.#held[at - this.#heldAt] * sinc * window * this.#cutoff;
    }
    return sum;
  }
}
