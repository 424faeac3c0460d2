// Speech of an Utterwire endpoint in a page: give it a socket, get sound and events.
// How to use it is told in player.md. Needs player-worklet.js and sound-formats.js beside it.

import { Resampler, decoderOf } from "./sound-formats.js";

const BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;
const JSON_SPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * What a receiver takes a chunk for (`protocol.md#receiver-rule`).
 *
 * @param {string | ArrayBuffer | Uint8Array} data as it came; a string is a text frame.
 * @param {"text" | "binary" | "unknown"} frame what the transport says of it.
 * @returns {{kind: "control", message: object | null} | {kind: "audio", bytes: Uint8Array}}
 *   `message` is null for a text frame that holds no control message: the endpoint's fault.
 */
export function classify(data, frame = typeof data === "string" ? "text" : "binary") {
  if (typeof data === "string") return { kind: "control", message: controlMessage(data) };
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  let message = null;
  if (frame === "text" || looksLikeObject(bytes)) {
    try {
      message = controlMessage(strictUtf8.decode(bytes));
    } catch {
      // No UTF-8: `message` stays null.
    }
  }
  if (frame === "text" || message !== null) return { kind: "control", message };
  return { kind: "audio", bytes };
}

function looksLikeObject(bytes) {
  if (bytes[0] !== BRACE) return false;
  let last = bytes.length - 1;
  while (JSON_SPACE.has(bytes[last])) last -= 1;
  return bytes[last] === CLOSING_BRACE;
}

function controlMessage(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject && Object.hasOwn(value, "type") && typeof value.type === "string" ? value : null;
}

/** Words for people out of what a peer says: one line of bounded length; `otherwise` if none. */
export function saidBy(peer, otherwise) {
  const words = typeof peer === "string" ? peer.slice(0, 4 * LONGEST_WORDS).trim() : "";
  if (words === "") return otherwise;
  const points = Array.from(words.replace(/\s+/gu, " "));
  return points.length > LONGEST_WORDS ? `${points.slice(0, LONGEST_WORDS).join("")}…` : points.join("");
}

/** An `EventTarget` whose events carry what they tell in `detail`. */
class Teller extends EventTarget {
  tell(name, detail = {}) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

const CAPACITY = 2 ** 18; // Samples in the worklet's ring: 11 s at 24 kHz.
const PIECE = 8192; // Samples in one message to the worklet.
const HIGH_WATER_S = 20;
const RESUME_MS = 400;
const RESUME_CLICKED_MS = 5000;
// What a page can play is within what every browser's AudioContext takes.
const LEAST_RATE = 3000;
const MOST_RATE = 384000;
const LONGEST_UTTERANCE = 2 ** 27; // In bytes: 46 minutes of 16-bit PCM at 24 kHz.
const LONGEST_WORDS = 300;
const BAD_GATEWAY = 1014; // A close code, as IANA registers them.

/** How long the first audio after silence is held back: what was needed lately, and a little more. */
export class Prebuffer {
  #needs = [];

  constructor({ initial = 0.02, least = 0.02, most = 1 } = {}) {
    this.least = least;
    this.most = most;
    this.seconds = this.#bounded(initial);
  }

  #bounded(seconds) {
    return Math.min(this.most, Math.max(this.least, seconds));
  }

  /** An utterance ended that would have been heard without a break after `seconds` of waiting. */
  needed(seconds) {
    this.#needs = [...this.#needs.slice(-7), seconds];
    this.seconds = this.#bounded(1.25 * Math.max(...this.#needs));
  }

  /** It was not enough. */
  grow() {
    this.seconds = this.#bounded(2 * this.seconds);
    this.#needs = [...this.#needs.slice(-7), this.seconds / 1.25];
  }
}

/**
 * Plays utterances one after the other, in an AudioWorklet, and tells to the sample what it did.
 *
 * Events, each with the moment in `detail.at` (`performance.now()`'s clock):
 * `begin`, `end`: the first sample of `id` is rendered, its last was; `frame`, and `audibleAt`, when
 * it leaves the loudspeaker as far as the browser knows. `underrun`, `resumed` {`id`, `seconds`,
 * `frames`}: audio came too late. `skipped` {`id`, `seconds`, `frames`}: the browser went on without
 * asking for audio. `drained`: all was played. `flushed` {`ids`, `seconds`, `frame`}. `level`
 * {`seconds`}: buffered. `samples` {`id`, `samples`, `sampleRate`}: decoded, before it is queued.
 * `prebuffer` {`seconds`}. `rendered` {`frame`, `samples`}: with `record`, what went out.
 */
export class Player extends Teller {
  #node;
  #utterances = [];
  #sent = 0;
  #read = 0;
  #waiters = [];
  #current = null;
  #begun = []; // Ids, until they have ended or are flushed.
  #flushes = []; // Ids of each flush that the audio thread has not answered.
  #announced = 0;
  #stats = { underruns: 0, underrunFrames: 0, skippedFrames: 0 };

  /**
   * Call it where the user has just clicked or typed: without that, browsers keep a page silent.
   *
   * @param {object} options
   * @param {AudioContext} options.context one of yours; else one is made at `sampleRate`.
   * @param {number} options.sampleRate in Hz; audio at another rate is resampled.
   * @param {Prebuffer} options.prebuffer how much is held back, and how that adapts.
   * @param {boolean} options.record tell everything that is rendered.
   * @param {AudioNode} options.output where the sound goes; the loudspeaker if left out.
   * @throws {Error} where the browser has no AudioWorklet, as in pages that came by plain http, and
   *     where the worklet beside this module cannot be loaded.
   */
  static async open({ context, sampleRate = 24000, prebuffer, record = false, output } = {}) {
    if (!globalThis.isSecureContext || typeof AudioWorkletNode === "undefined") {
      throw new Error("Browsers play streamed sound only in pages from https or from localhost.");
    }
    const player = new Player();
    player.ownsContext = context === undefined;
    player.context = context ?? new AudioContext({ sampleRate, latencyHint: "interactive" });
    player.prebuffer = prebuffer ?? new Prebuffer();
    const worklet = new URL("./player-worklet.js", import.meta.url);
    try {
      await player.context.audioWorklet.addModule(worklet);
    } catch (cause) {
      if (player.ownsContext) await player.context.close();
      throw new Error(`The player is not whole: ${worklet} cannot be loaded.`, { cause });
    }
    player.#connect(record, output ?? player.context.destination);
    return player;
  }

  #connect(record, output) {
    const frames = this.#heldBack();
    this.#node = new AudioWorkletNode(this.context, "utterwire-player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { capacity: CAPACITY, prebuffer: frames, record },
    });
    this.#announced = frames;
    this.#node.port.onmessage = (event) => this.#hear(event.data);
    this.#node.connect(output);
  }

  /** Of the output, in Hz. */
  get sampleRate() {
    return this.context.sampleRate;
  }

  /** Seconds of audio that have not been rendered. */
  get bufferedSeconds() {
    const waiting = this.#utterances.reduce((sum, it) => sum + it.waiting, 0);
    return (waiting + this.#sent - this.#read) / this.sampleRate;
  }

  /** Underruns since it was opened, for how many frames nothing was there, and how many the browser
   * left out. */
  get stats() {
    return { ...this.#stats };
  }

  /** Start the sound; the state of the context after a moment: "suspended" if it may not. */
  async resume() {
    if (this.context.state !== "running") {
      // A browser that lets the page speak may be slow; one that does not never answers.
      const mayIt = globalThis.navigator?.userActivation?.hasBeenActive;
      const patience = new Promise((resolve) => {
        setTimeout(resolve, mayIt ? RESUME_CLICKED_MS : RESUME_MS);
      });
      await Promise.race([this.context.resume(), patience]);
    }
    return this.context.state;
  }

  /**
   * A new utterance, heard after those that were begun before.
   *
   * @returns {Utterance} to write its audio to.
   */
  begin({ id, format = "pcm_s16le", sampleRate = this.sampleRate }) {
    const utterance = new Utterance(this, { id, format, sampleRate }, () => this.#pump());
    this.#utterances.push(utterance);
    this.#begun.push(id);
    return utterance;
  }

  /** Be silent at once, and forget all that was begun. */
  flush() {
    for (const utterance of this.#utterances) utterance.forget();
    this.#current?.forget();
    this.#utterances = [];
    this.#current = null;
    this.#flushes.push(this.#begun);
    this.#begun = [];
    this.#read = this.#sent;
    this.#node.port.postMessage({ type: "flush" });
    this.#release();
  }

  async close() {
    this.flush();
    // Else it would run on in a context that is not ours.
    this.#node.port.postMessage({ type: "stop" });
    this.#node.disconnect();
    if (this.ownsContext) await this.context.close();
  }

  /**
   * When a frame was rendered and when it is heard, in the clock of `performance.now()`.
   *
   * @param {number} wall what `Date.now()` was in the audio thread, which has no other clock.
   */
  #timeOf({ frame, wall }) {
    const { context } = this;
    const now = performance.now();
    // It counts whole milliseconds: the end of that one, or when the message came.
    const at = Math.min(now, wall + 1 - (Date.now() - now));
    const heard = context.getOutputTimestamp?.() ?? {};
    const latency = (context.outputLatency || 0) * 1000;
    const audibleAt = heard.performanceTime
      ? heard.performanceTime + (frame / context.sampleRate - heard.contextTime) * 1000
      : at + latency;
    return { at, audibleAt: Math.max(at, audibleAt) };
  }

  /** Returns once less than a while is buffered; who can wait should. */
  async room() {
    while (this.bufferedSeconds > HIGH_WATER_S) {
      await new Promise((resolve) => this.#waiters.push(resolve));
    }
  }

  #release() {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }

  #pump() {
    const port = this.#node.port;
    this.#announce();
    for (;;) {
      const utterance = this.#utterances[0];
      if (utterance === undefined) return;
      while (utterance.pieces.length > 0) {
        const samples = utterance.pieces[0];
        if (this.#sent + samples.length - this.#read > CAPACITY) return;
        if (!utterance.isBegun) {
          utterance.isBegun = true;
          port.postMessage({ type: "begin", id: utterance.id });
        }
        utterance.pieces.shift();
        utterance.waiting -= samples.length;
        this.#sent += samples.length;
        port.postMessage({ type: "audio", samples }, [samples.buffer]);
      }
      if (!utterance.isFinished) return;
      this.#utterances.shift();
      if (utterance.isBegun) {
        port.postMessage({ type: "end", id: utterance.id });
        this.#current = utterance;
      } else {
        this.#forgetId(utterance.id);
        this.tell("end", { id: utterance.id, at: performance.now(), frame: null });
      }
    }
  }

  #forgetId(id) {
    this.#begun = this.#begun.filter((it) => it !== id);
  }

  /** Frames; more than the ring holds would never be there. */
  #heldBack() {
    return Math.min(CAPACITY / 2, Math.round(this.prebuffer.seconds * this.sampleRate));
  }

  #announce() {
    const frames = this.#heldBack();
    if (frames === this.#announced) return;
    this.#announced = frames;
    this.#node.port.postMessage({ type: "prebuffer", frames });
    this.tell("prebuffer", { seconds: this.prebuffer.seconds });
  }

  #hear(message) {
    const { type, frame } = message;
    const seconds = (count) => count / this.sampleRate;
    const time = message.wall === undefined ? {} : this.#timeOf(message);
    switch (type) {
      case "begin":
        this.playing = message.id;
        this.tell("begin", { id: message.id, frame, ...time });
        break;
      case "end":
        this.#forgetId(message.id);
        this.tell("end", { id: message.id, frame, ...time });
        break;
      case "underrun":
        this.tell("underrun", { id: this.playing, frame, ...time });
        break;
      case "resumed":
        if (message.frames > 0) {
          this.#stats.underruns += 1;
          this.#stats.underrunFrames += message.frames;
          this.prebuffer.grow();
          this.#announce();
        }
        this.tell("resumed", {
          id: this.playing,
          frame,
          frames: message.frames,
          seconds: seconds(message.frames),
          ...time,
        });
        break;
      case "skipped":
        this.#stats.skippedFrames += message.frames;
        this.tell("skipped", {
          id: this.playing,
          frame,
          frames: message.frames,
          seconds: seconds(message.frames),
          ...time,
        });
        break;
      case "drained":
        this.tell("drained", { frame, ...time });
        break;
      case "flushed":
        this.tell("flushed", {
          ids: this.#flushes.shift(),
          frame,
          seconds: seconds(message.dropped),
          ...time,
        });
        break;
      case "level":
        this.#read = Math.max(this.#read, message.read);
        this.#pump();
        if (this.bufferedSeconds <= HIGH_WATER_S) this.#release();
        this.tell("level", { seconds: this.bufferedSeconds, at: performance.now() });
        break;
      case "rendered":
        this.tell("rendered", { frame, samples: message.samples });
        break;
    }
  }
}

/** One utterance on its way to the loudspeaker; `Player.begin` makes it. */
class Utterance {
  #player;
  #decoder;
  #resampler = null;
  #whole = [];
  #changed;
  #beganAt = null;
  #need = 0;
  #forgotten = false;

  constructor(player, { id, format, sampleRate }, changed) {
    this.id = id;
    this.format = format;
    this.sampleRate = sampleRate;
    this.pieces = [];
    this.waiting = 0; // Samples in `pieces`.
    this.isBegun = false;
    this.isFinished = false;
    /** Seconds of audio decoded so far. */
    this.seconds = 0;
    this.#player = player;
    this.#changed = changed;
    this.#decoder = decoderOf(format);
    if (this.#decoder !== null && sampleRate !== player.sampleRate) {
      this.#resampler = new Resampler(sampleRate, player.sampleRate);
    }
  }

  /** Audio, cut anywhere. Resolves when there is room for more; nobody has to wait for that. */
  async write(bytes) {
    if (this.#forgotten || this.isFinished) return;
    if (this.#decoder === null) {
      this.#whole.push(bytes);
      return;
    }
    const now = performance.now();
    this.#beganAt ??= now;
    this.#need = Math.max(this.#need, (now - this.#beganAt) / 1000 - this.seconds);
    this.#queue(this.#decoder.push(bytes));
    await this.#player.room();
  }

  /**
   * Nothing more comes.
   *
   * @throws {Error} if the browser cannot decode what came; the utterance then ends without it.
   */
  async end() {
    if (this.#forgotten || this.isFinished) return;
    try {
      if (this.#whole.length > 0) await this.#decodeWhole();
      else if (this.#resampler !== null) this.#push(this.#resampler.finish());
    } finally {
      if (this.#decoder !== null && this.#beganAt !== null) {
        this.#player.prebuffer.needed(this.#need);
      }
      this.isFinished = true;
      if (!this.#forgotten) this.#changed();
    }
  }

  async #decodeWhole() {
    const file = await new Blob(this.#whole).arrayBuffer();
    this.#whole = [];
    let decoded;
    try {
      decoded = await this.#player.context.decodeAudioData(file);
    } catch {
      throw new Error(`This browser cannot decode ${this.format}.`);
    }
    if (this.#forgotten) return;
    this.sampleRate = decoded.sampleRate;
    this.#queue(decoded.getChannelData(0).slice());
  }

  #queue(samples) {
    if (samples.length === 0) return;
    this.seconds += samples.length / this.sampleRate;
    this.#player.tell("samples", { id: this.id, samples, sampleRate: this.sampleRate });
    this.#push(this.#resampler === null ? samples : this.#resampler.push(samples));
  }

  #push(samples) {
    for (let at = 0; at < samples.length; at += PIECE) {
      this.pieces.push(samples.slice(at, at + PIECE));
    }
    this.waiting += samples.length;
    this.#changed();
  }

  /** It was flushed: whatever comes still is dropped. */
  forget() {
    this.#forgotten = true;
    this.isFinished = true;
    this.pieces = [];
    this.waiting = 0;
    this.#whole = [];
  }
}

/**
 * Texts on their way to an endpoint and back as sound: what all transports have in common.
 *
 * Events, each with `id` and `at`: `sent`; `start` {`sampleRate`, `format`, `voice`}; `chunk`
 * {`bytes`, `first`}; `marks` {`words`}; `complete` {`seconds`, `elapsed_s`}; `cancelled`; `failed`
 * {`code`, `message`, `seconds`}: of the audio that came before, so much is kept and played.
 */
export class Speech extends Teller {
  static #made = 0;
  // The player tells of utterances by id, whichever `Speech` they came by.
  #prefix = `s${(Speech.#made += 1)}u`;
  #count = 0;
  #waiting = [];
  #inFlight = [];
  #isHeld = false;

  /** @param {number} depth utterances that are asked for at the same time. */
  constructor(player, { depth }) {
    super();
    this.player = player;
    this.depth = depth;
  }

  /** The `id` that the next text will have. */
  get nextId() {
    return `${this.#prefix}${this.#count + 1}`;
  }

  /** Speak `text` after all that was given before; returns its `id`. */
  speak(text, fields = {}) {
    const id = this.nextId;
    this.#count += 1;
    const line = { id, text, fields, sink: null, bytes: 0, seq: null };
    this.#waiting.push(line);
    this.advance();
    return id;
  }

  /** Utterances that have not ended. */
  get unended() {
    return this.#waiting.length + this.#inFlight.length;
  }

  /** Be silent at once, and have the endpoint stop. */
  interrupt() {
    this.player.flush();
    const asked = this.#inFlight;
    for (const line of this.#waiting.splice(0)) this.#tellOf(line, "cancelled");
    this.#inFlight = [];
    for (const line of asked) this.#tellOf(line, "cancelled");
    if (asked.length > 0) this.stop(asked);
    this.advance();
  }

  /** For transports: begin with what waits, as far as `depth` has it and the player has room. */
  advance() {
    while (this.#waiting.length > 0 && this.#inFlight.length < this.depth && this.isReady) {
      if (this.player.bufferedSeconds > HIGH_WATER_S) {
        this.#waitForRoom();
        return;
      }
      const line = this.#waiting.shift();
      this.#inFlight.push(line);
      this.ask(line);
      this.#tellOf(line, "sent");
    }
  }

  async #waitForRoom() {
    if (this.#isHeld) return;
    this.#isHeld = true;
    await this.player.room();
    this.#isHeld = false;
    this.advance();
  }

  get inFlight() {
    return this.#inFlight;
  }

  get isWaiting() {
    return this.#waiting.length > 0;
  }

  #tellOf(line, name, detail = {}) {
    this.tell(name, { id: line.id, at: performance.now(), ...detail });
  }

  started(line, { sample_rate, format, voice = null } = {}) {
    // What is told twice is told once.
    if (!this.#inFlight.includes(line) || line.sink !== null) return;
    const sampleRate = sample_rate ?? 24000;
    if (!(sampleRate >= LEAST_RATE && sampleRate <= MOST_RATE)) {
      this.#giveUp(line, "the endpoint tells a sample rate that cannot be played");
      return;
    }
    const known = typeof format === "string" ? format : "pcm_s16le";
    line.sink = this.player.begin({ id: line.id, format: known, sampleRate });
    this.#tellOf(line, "start", { sampleRate, format: known, voice });
  }

  #giveUp(line, message) {
    this.stop([line]);
    this.failed(line, null, message);
  }

  async heard(line, bytes) {
    if (!this.#inFlight.includes(line)) return;
    // Deployed endpoints may leave the start out.
    if (line.sink === null) this.started(line);
    if (line.bytes + bytes.length > LONGEST_UTTERANCE) {
      this.#giveUp(line, "the endpoint sends audio without an end");
      return;
    }
    const first = line.bytes === 0;
    line.bytes += bytes.length;
    this.#tellOf(line, "chunk", { bytes: bytes.length, first });
    await line.sink.write(bytes);
  }

  marked(line, words) {
    if (!this.#inFlight.includes(line) || !Array.isArray(words)) return;
    this.#tellOf(line, "marks", { words: words.filter(isWord) });
  }

  async completed(line, { elapsed_s = null, total_duration_s = null } = {}) {
    if (!this.#leave(line)) return;
    this.advance();
    try {
      await line.sink?.end();
    } catch (error) {
      this.#tellOf(line, "failed", { code: null, message: error.message, seconds: 0 });
      return;
    }
    const seconds = line.sink?.seconds ?? total_duration_s ?? 0;
    this.#tellOf(line, "complete", { seconds, elapsed_s });
  }

  failed(line, code, message) {
    if (!this.#leave(line)) return;
    // What came is good sound.
    line.sink?.end().catch(() => {});
    this.#tellOf(line, "failed", { code, message, seconds: line.sink?.seconds ?? 0 });
    this.advance();
  }

  /** All that was asked for, or waits, comes to nothing. */
  broken(message, code = null) {
    for (const line of [...this.#inFlight]) this.failed(line, code, message);
    for (const line of this.#waiting.splice(0)) {
      this.#tellOf(line, "failed", { code, message, seconds: 0 });
    }
  }

  #leave(line) {
    const at = this.#inFlight.indexOf(line);
    if (at < 0) return false;
    this.#inFlight.splice(at, 1);
    return true;
  }
}

function isWord(word) {
  const { start_s: start, end_s: end, char_start: from, char_end: to } = word ?? {};
  return start >= 0 && end >= start && Number.isInteger(from) && Number.isInteger(to) &&
    from >= 0 && to > from;
}

/**
 * Speech over a WebSocket session.
 *
 * `socket` is open or opening; all that comes through it is this object's. Besides the events of
 * `Speech`: `open`; `session` (the answer to `hello`); `closed` {`code`, `reason`}.
 */
export class SocketSpeech extends Speech {
  #socket;
  #asked = 0; // Ordinal of the last message, its `seq`.
  #lines = new Map(); // By `seq`, also of those that were interrupted.
  #running = null;
  #wasOpen = false;
  #isClosing = false;
  #saidClose = false;

  constructor(socket, player, { depth = 3, hello = false } = {}) {
    super(player, { depth });
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    const open = () => {
      this.#wasOpen = true;
      if (hello) this.#say({ type: "hello", protocol_versions: [1] });
      this.tell("open");
      this.advance();
    };
    socket.addEventListener("open", open);
    socket.addEventListener("message", (event) => this.#take(event.data));
    socket.addEventListener("close", (event) => this.#end(event));
    if (socket.readyState === WebSocket.OPEN) queueMicrotask(open);
  }

  get isReady() {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  /** Whether it can be used, or will be. */
  get isAlive() {
    const { readyState } = this.#socket;
    return readyState <= WebSocket.OPEN && this.ended === undefined && !this.#isClosing;
  }

  ask(line) {
    line.seq = this.#say({ type: "synthesize", text: line.text, ...line.fields });
    this.#lines.set(line.seq, line);
  }

  stop() {
    if (this.isReady) this.#say({ type: "cancel" });
  }

  advance() {
    super.advance();
    if (this.#isClosing && this.isReady && !this.isWaiting && !this.#saidClose) {
      this.#saidClose = true;
      this.#say({ type: "close" });
    }
  }

  /** Leave in order: all that was given is spoken, and then the endpoint closes. */
  close() {
    this.#isClosing = true;
    if (!this.isReady && !this.isWaiting) this.#socket.close();
    else this.advance();
  }

  #say(message) {
    this.#socket.send(JSON.stringify(message));
    return (this.#asked += 1);
  }

  #take(data) {
    const chunk = classify(data);
    if (chunk.kind === "audio") {
      const line = this.#running ?? this.#oldest;
      if (line !== undefined && chunk.bytes.length > 0) this.heard(line, chunk.bytes);
    } else if (chunk.message !== null) {
      this.#obey(chunk.message);
    }
  }

  /** Of what was asked for and has not ended, also if it was interrupted. */
  get #oldest() {
    return this.#lines.values().next().value;
  }

  #obey(message) {
    // Endpoints in the field tell no `seq`; they serve in order.
    const line = (message.seq ?? null) === null ? this.#oldest : this.#lines.get(message.seq);
    switch (message.type) {
      case "synthesis_start":
        if (line) {
          this.#running = line;
          this.started(line, message);
        }
        break;
      case "marks":
        if (line) this.marked(line, message.words);
        break;
      case "synthesis_complete":
        if (line) this.completed(line, message);
        this.#forget(line);
        break;
      case "error":
        if (line) {
          this.failed(line, message.code ?? null, saidBy(message.message, "the endpoint failed"));
        }
        this.#forget(line);
        break;
      case "cancelled":
        // What was interrupted here is none of ours any more.
        if (line) this.failed(line, null, "the endpoint cancelled it");
        this.#forget(line);
        break;
      case "session":
        this.tell("session", message);
        break;
      case "session_closed":
        this.ended = saidBy(message.reason, "no reason");
        this.broken(`the endpoint ended the session (${this.ended})`);
        this.#socket.close();
        break;
    }
  }

  #forget(line) {
    if (!line) return;
    this.#lines.delete(line.seq);
    if (this.#running === line) this.#running = null;
  }

  #end({ code, reason }) {
    const why = code === 1006 ? "" : ` with code ${code}${reason ? `: ${reason}` : ""}`;
    const closed = this.#wasOpen
      ? `the endpoint closed before completing${why}`
      : "the endpoint cannot be reached, or refuses the session";
    // A relay that did not get through closes as a gateway does.
    const isUnreached = code === BAD_GATEWAY && reason !== "";
    this.broken(isUnreached ? reason : closed);
    this.tell("closed", { code, reason });
  }
}
