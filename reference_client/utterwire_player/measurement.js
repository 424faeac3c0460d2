// One conversation, measured: when each sentence was ready, sent, received, rendered and heard.
// The result has the form of the schema `latency`.

const WINDOW_S = 0.01;
const HOP_S = 0.001;
const HELD_S = 0.05;
const LEVEL = 10 ** (-40 / 20);

/**
 * Looks for the first sound: windows of 10 ms, one each millisecond, the mean taken out of each;
 * sound begins where their level reaches -40 dBFS and stays there for 50 ms, in the middle of the
 * first such window.
 */
export class SoundFinder {
  #hop;
  #rate;
  #hops = Math.round(WINDOW_S / HOP_S);
  #held = Math.round(HELD_S / HOP_S);
  #sums = [];
  #sum = 0;
  #squares = 0;
  #inHop = 0;
  #count = 0;
  #loud = 0;
  /** Seconds from the first sample; null as long as it is not decided. */
  at = null;

  constructor(sampleRate) {
    this.#rate = sampleRate;
    this.#hop = Math.max(1, Math.round(sampleRate * HOP_S));
  }

  feed(samples) {
    for (let index = 0; index < samples.length && this.at === null; index += 1) {
      this.#sum += samples[index];
      this.#squares += samples[index] ** 2;
      this.#inHop += 1;
      if (this.#inHop === this.#hop) this.#endHop();
    }
    return this.at;
  }

  #endHop() {
    this.#sums.push([this.#sum, this.#squares]);
    this.#sum = this.#squares = this.#inHop = 0;
    this.#count += 1;
    if (this.#sums.length > this.#hops) this.#sums.shift();
    if (this.#sums.length < this.#hops) return;
    const size = this.#hops * this.#hop;
    const mean = this.#sums.reduce((total, [sum]) => total + sum, 0) / size;
    const power = this.#sums.reduce((total, [, squares]) => total + squares, 0) / size;
    const level = Math.sqrt(Math.max(power - mean * mean, 0));
    this.#loud = level >= LEVEL ? this.#loud + 1 : 0;
    if (this.#loud === this.#held) {
      const first = this.#count - this.#hops - this.#held + 1;
      this.at = ((first + this.#hops / 2) * this.#hop) / this.#rate;
    }
  }
}

const rounded = (seconds) => Math.round(seconds * 1e6) / 1e6;

/** Listens to a `Speech` and its `Player`; times are those of `performance.now()`. */
export class Measurement {
  #ends = [];
  #listening = new AbortController();

  /**
   * @param {object} about `endpoint`, `options`, `madeBy` as in the schema `latency`.
   * @param {() => void} changed called after each change.
   */
  constructor(about, changed = () => {}) {
    this.about = about;
    this.changed = changed;
    this.rows = [];
    this.audio = null;
    this.startedWhen = new Date();
  }

  /** A sentence; call it before it is spoken. `beganAt` and `readyAt`: when its text was there. */
  add({ id, index, text, beganAt, readyAt }) {
    this.rows.push({
      id, index, text, beganAt, readyAt,
      sentAt: null, firstByteAt: null, lastByteAt: null, renderedAt: null, heardAt: null,
      renderedTo: null, heardTo: null, silence: null, audioSeconds: null, elapsed: null,
      bytes: 0, chunks: 0, gap: 0, stall: 0, underruns: 0, failure: null, ended: false, isCut: false,
      finder: null,
    });
    this.changed();
  }

  /** Take part in what `speech` and its player tell, until `stop`. */
  follow(speech) {
    const { signal } = this.#listening;
    const on = (target, name, take) => {
      target.addEventListener(name, ({ detail }) => {
        const row = detail.id === undefined ? null : this.rows.find((it) => it.id === detail.id);
        if (row === undefined) return;
        take(detail, row);
        this.changed();
      }, { signal });
    };
    const ended = (row) => {
      row.ended = true;
    };
    on(speech, "sent", ({ at }, row) => (row.sentAt = at));
    on(speech, "start", ({ format, sampleRate }) => {
      this.audio ??= { format, sample_rate: sampleRate };
    });
    on(speech, "chunk", ({ at, bytes, first }, row) => {
      if (first) row.firstByteAt = at;
      row.bytes += bytes;
      row.chunks += 1;
    });
    on(speech, "complete", ({ at, seconds, elapsed_s: elapsed }, row) => {
      row.lastByteAt = at;
      row.audioSeconds = seconds;
      row.elapsed = elapsed;
      ended(row);
    });
    on(speech, "failed", ({ message, seconds }, row) => {
      row.failure = message;
      row.audioSeconds = seconds;
      ended(row);
    });
    on(speech, "cancelled", (_, row) => {
      row.failure = "interrupted";
      ended(row);
    });
    const { player } = speech;
    on(player, "samples", ({ samples, sampleRate }, row) => {
      row.audioSeconds = (row.audioSeconds ?? 0) + samples.length / sampleRate;
      row.finder ??= new SoundFinder(sampleRate);
      row.silence ??= row.finder.feed(samples);
    });
    on(player, "begin", ({ at, audibleAt, frame }, row) => {
      row.renderedAt = at;
      row.heardAt = audibleAt;
      const before = this.#ends.at(-1);
      if (before !== undefined) row.gap = Math.max(0, (frame - before) / player.sampleRate);
    });
    on(player, "end", ({ at, audibleAt, frame }, row) => {
      if (frame === null) return;
      row.renderedTo = at;
      row.heardTo = audibleAt;
      this.#ends.push(frame);
    });
    on(player, "resumed", ({ seconds }, row) => {
      if (seconds === 0 || row === null) return;
      row.stall += seconds;
      row.underruns += 1;
    });
    on(player, "flushed", ({ ids, at, audibleAt }) => {
      for (const row of this.rows.filter((it) => ids.includes(it.id) && it.renderedTo === null)) {
        row.failure ??= "interrupted";
        row.isCut = true;
        if (row.renderedAt === null) continue;
        row.renderedTo = at;
        row.heardTo = audibleAt;
      }
    });
  }

  /** Nothing that is told from now on belongs to it. */
  stop() {
    this.#listening.abort();
  }

  /** When the first of the text was there; null before. */
  get zero() {
    return this.rows[0]?.beganAt ?? null;
  }

  /** Whether nothing more is to come or to be heard. */
  get isOver() {
    const isHeard = (row) => row.renderedTo !== null || row.isCut || !row.audioSeconds;
    return this.rows.every((row) => row.ended && isHeard(row));
  }

  /** @returns {object} what the schema calls `summary`. */
  summary() {
    const { rows, zero } = this;
    const first = rows.find((row) => row.firstByteAt !== null);
    const sum = (value) => rounded(rows.reduce((total, row) => total + (value(row) ?? 0), 0));
    const audio = sum((row) => row.audioSeconds);
    const knows = rows.length > 0 && audio > 0 && rows.every((row) => row.elapsed !== null);
    const ends = rows.map((row) => row.lastByteAt).filter((at) => at !== null);
    return {
      first_byte_s: first ? between(first.sentAt, first.firstByteAt) : null,
      first_sound_s: first ? between(first.sentAt, soundAt(first)) : null,
      heard_s: first ? between(zero, first.heardAt) : null,
      rendered_s: first ? between(zero, first.renderedAt) : null,
      gaps: rows.filter((row) => row.gap > 0).length,
      gap_s: sum((row) => row.gap),
      stall_s: sum((row) => row.stall),
      underruns: rows.reduce((total, row) => total + row.underruns, 0),
      audio_s: audio,
      duration_s: ends.length > 0 ? between(zero, Math.max(...ends)) : 0,
      real_time_factor: knows ? rounded(sum((row) => row.elapsed) / audio) : null,
    };
  }

  /** The result, in the form of the schema `latency`. */
  document() {
    const { rows, zero } = this;
    return {
      utterwire_latency: 1,
      made_by: this.about.madeBy,
      started: this.startedWhen.toISOString(),
      endpoint: this.about.endpoint,
      options: this.about.options,
      audio: this.audio,
      // What was never asked for (it was interrupted before) has no row.
      sentences: rows.filter((row) => row.sentAt !== null).map((row) => ({
        index: row.index,
        text: row.text,
        text_began_s: between(zero, row.beganAt),
        text_ready_s: between(zero, row.readyAt),
        sent_s: between(zero, row.sentAt),
        first_byte_s: between(zero, row.firstByteAt),
        first_sound_s: between(zero, soundAt(row)),
        last_byte_s: between(zero, row.lastByteAt),
        rendered_s: between(zero, row.renderedAt),
        heard_s: between(zero, row.heardAt),
        heard_to_s: between(zero, row.heardTo),
        audio_s: row.audioSeconds === null ? null : rounded(row.audioSeconds),
        audio_bytes: row.bytes,
        chunks: row.chunks,
        gap_s: rounded(row.gap),
        stall_s: rounded(row.stall),
        underruns: row.underruns,
      })),
      summary: this.summary(),
    };
  }
}

/** When the first sound of a row arrived; null if that is not known. */
export function soundAt(row) {
  return row.firstByteAt === null || row.silence === null
    ? null
    : row.firstByteAt + row.silence * 1000;
}

/** Seconds from one moment to another that is not before it; null if that is not known. */
export function between(earlier, later) {
  if (earlier === null || later === null) return null;
  return rounded(Math.max(0, later - earlier) / 1000);
}
