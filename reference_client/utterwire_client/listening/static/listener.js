// Listens to answers, one at a time, and tells for each what was heard, with every sample of it.
// Whoever drives the page calls `window.listen(job)`; then `window.due` resolves to whether it is to
// click on Interrupt now, and `window.told` to what was heard.

import { SentenceCutter, split, typed } from "./agent.js";
import { Measurement } from "./measurement.js";
import { RequestSpeech } from "./request-speech.js";
import { Player, Prebuffer, SocketSpeech } from "./utterwire-player.js";

const LONGEST = 4096; // Code points that every endpoint takes (`protocol.md#text`).
const TAIL_MS = 100; // Recorded after the end,
const HUSH_MS = 400; // and after an interruption: nothing of the old may come.
const LOOK_MS = 50;

const at = (id) => document.getElementById(id);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let player = null;
const speeches = new Map(); // By transport.

/** What the page can tell of the browser. */
window.browser = () => ({
  sample_rate: player.sampleRate,
  output_latency_s: player.context.outputLatency || null,
});

async function speechBy(transport, silenceMs) {
  let speech = speeches.get(transport);
  if (speech?.isAlive) return speech;
  if (transport === "sse") {
    const url = new URL("invocations", document.baseURI).href;
    speech = new RequestSpeech(url, player, { events: true });
  } else {
    const url = new URL("session", document.baseURI);
    url.protocol = "ws:";
    speech = new SocketSpeech(new WebSocket(url), player);
    try {
      await opened(speech, silenceMs);
    } catch (error) {
      speech.close();
      throw error;
    }
  }
  speeches.set(transport, speech);
  return speech;
}

function opened(speech, silenceMs) {
  let timer = null;
  return new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error("the endpoint opens no session")), silenceMs);
    speech.addEventListener("open", resolve);
    speech.addEventListener("closed", ({ detail: { code, reason } }) =>
      reject(new Error(reason || `no session can be opened (code ${code})`)));
  }).finally(() => clearTimeout(timer));
}

function drop(transport) {
  const speech = speeches.get(transport);
  speeches.delete(transport);
  // The endpoint is not to work on for nobody, beside what is measured next.
  speech.interrupt();
  speech.close();
}

/** Keeps what the player is given, renders and tells, from now on until `stop`. */
class Recorder {
  #listening = new AbortController();
  blocks = [];
  utterances = new Map();
  holes = [];
  skipped = 0;
  flushed = null;
  #dry = null;

  constructor() {
    const on = (name, take) =>
      player.addEventListener(name, ({ detail }) => take(detail), { signal: this.#listening.signal });
    const of = (id) => {
      if (!this.utterances.has(id)) {
        this.utterances.set(id, { samples: [], sampleRate: null, begin: null, end: null });
      }
      return this.utterances.get(id);
    };
    on("rendered", (block) => this.blocks.push(block));
    on("samples", ({ id, samples, sampleRate }) => {
      const utterance = of(id);
      utterance.sampleRate = sampleRate;
      utterance.samples.push(samples);
    });
    on("begin", ({ id, frame }) => (of(id).begin = frame));
    on("end", ({ id, frame }) => (of(id).end = frame));
    on("underrun", ({ frame }) => (this.#dry = frame));
    on("resumed", ({ frame, frames }) => {
      if (frames > 0) this.holes.push([this.#dry, frame]);
      this.#dry = null;
    });
    on("skipped", ({ frame, frames }) => {
      this.holes.push([frame, frame + frames]);
      this.skipped += frames;
    });
    on("flushed", (detail) => {
      this.flushed = detail;
      if (this.#dry !== null) this.holes.push([this.#dry, detail.frame]);
      this.#dry = null;
    });
  }

  stop() {
    this.#listening.abort();
  }

  /** Everything that was rendered; frames that were left out are zero. */
  recording() {
    const { blocks } = this;
    if (blocks.length === 0) return { first: 0, samples: "", holes: this.holes };
    const first = blocks[0].frame;
    const last = blocks.at(-1);
    const all = new Float32Array(last.frame + last.samples.length - first);
    for (const { frame, samples } of blocks) all.set(samples, frame - first);
    return { first, samples: base64(all), holes: this.holes };
  }

  told() {
    return Array.from(this.utterances.values(), ({ samples, sampleRate, begin, end }) => {
      const all = new Float32Array(samples.reduce((sum, it) => sum + it.length, 0));
      let place = 0;
      for (const part of samples) {
        all.set(part, place);
        place += part.length;
      }
      return { samples: base64(all), sample_rate: sampleRate, begin, end };
    });
  }
}

function base64(floats) {
  const bytes = new Uint8Array(floats.buffer);
  const parts = [];
  for (let place = 0; place < bytes.length; place += 0x8000) {
    parts.push(String.fromCharCode(...bytes.subarray(place, place + 0x8000)));
  }
  return btoa(parts.join(""));
}

/** Gives the text as it is written, and asks for it as the job has it. */
async function write({ parts, ask, rate }, say, signal) {
  const cutter = new SentenceCutter("en");
  let beganAt = null;
  let whole = "";
  const give = (sentences) => {
    const now = performance.now();
    for (const sentence of sentences) {
      for (const piece of split(sentence, LONGEST)) say(piece, beganAt ?? now, now);
      beganAt = null;
    }
  };
  const token = (piece) => {
    beganAt ??= performance.now();
    if (ask === "batch") whole += piece;
    else give(cutter.feed(piece));
  };
  let isFirst = true;
  for (const part of parts) {
    if (typeof part === "number") {
      // Who pauses has said something whole: as before the call of a tool.
      if (ask === "bidi") give(cutter.finish());
      await pause(1000 * part);
    } else {
      const text = isFirst || /^\s/u.test(part) ? part : ` ${part}`;
      if (rate === null) token(text);
      else await typed(text, rate, token, signal);
      isFirst = false;
    }
    if (signal.aborted) return;
  }
  give(ask === "batch" ? [whole.trim()] : cutter.finish());
}

/**
 * One answer, to its end.
 *
 * @param {object} job `parts`, `interrupt_after_s`, `ask` ("bidi" or "batch"), `transport`
 *   ("websocket" or "sse"), `rate` in tokens a second or null, `voice` or null, `silence_s`: how
 *   long nothing may happen.
 * @param {(isDue: boolean) => void} tellDue called when it is to be interrupted.
 * @returns {Promise<object>} `failure`, or what there is to tell.
 */
async function listen(job, tellDue) {
  const { transport, interrupt_after_s: interruptAfter, silence_s: silence } = job;
  let speech;
  try {
    speech = await speechBy(transport, 1000 * silence);
  } catch (error) {
    return { failure: error.message };
  }
  // Each answer as the first: what one needed is no help to the next.
  player.prebuffer = new Prebuffer();
  const writing = new AbortController();
  const listening = new AbortController();
  const { signal } = listening;
  const recorder = new Recorder();
  let signOfLife = performance.now();
  const measurement = new Measurement(
    { madeBy: "utterwire", endpoint: { name: "endpoint" }, options: { transport } },
    () => (signOfLife = performance.now()),
  );
  measurement.follow(speech);
  let failure = null;
  let clickedAt = null;
  speech.addEventListener("failed", ({ detail }) => (failure ??= detail.message), { signal });
  const click = ({ timeStamp }) => {
    clickedAt = timeStamp;
    writing.abort();
    speech.interrupt();
    at("interrupt").disabled = true;
  };
  at("interrupt").addEventListener("click", click, { signal });
  let timer = null;
  if (interruptAfter !== null) {
    const ready = () => {
      at("interrupt").disabled = false;
      tellDue(true);
    };
    const begin = () => (timer ??= setTimeout(ready, 1000 * interruptAfter));
    player.addEventListener("begin", begin, { signal });
  }
  const fields = job.voice === null ? {} : { voice: job.voice };
  const say = (text, beganAt, readyAt) => {
    // The row is there before the events that tell of it.
    const index = measurement.rows.length;
    measurement.add({ id: speech.nextId, index, text, beganAt, readyAt });
    speech.speak(text, fields);
  };
  let isWritten = false;
  write(job, say, writing.signal).then(() => {
    isWritten = true;
    signOfLife = performance.now();
  });
  while (failure === null && clickedAt === null && !(isWritten && measurement.isOver)) {
    await pause(LOOK_MS);
    if (!isWritten && measurement.isOver) signOfLife = performance.now();
    if (performance.now() - signOfLife > 1000 * silence) {
      failure = `nothing was heard for ${silence} s`;
    }
  }
  if (clickedAt !== null) {
    while (recorder.flushed === null) await pause(LOOK_MS);
    await pause(HUSH_MS);
  } else {
    await pause(TAIL_MS);
  }
  clearTimeout(timer);
  writing.abort();
  listening.abort();
  recorder.stop();
  measurement.stop();
  at("interrupt").disabled = true;
  if (failure === null && interruptAfter !== null && clickedAt === null) {
    failure = "it ended before it was to be interrupted";
  } else if (failure === null && measurement.summary().heard_s === null) {
    failure = "it made no sound";
  }
  if (failure !== null) {
    drop(transport);
    return { failure };
  }
  const { flushed } = recorder;
  return {
    failure,
    document: measurement.document(),
    sample_rate: player.sampleRate,
    skipped: recorder.skipped,
    recording: recorder.recording(),
    utterances: recorder.told(),
    interruption: clickedAt === null ? null : {
      clicked_at: clickedAt, frame: flushed.frame, at: flushed.at, audible_at: flushed.audibleAt,
    },
  };
}

window.listen = (job) => {
  let tellDue = null;
  window.due = new Promise((resolve) => (tellDue = resolve));
  window.told = listen(job, tellDue).finally(() => tellDue(false));
};
at("start").addEventListener("click", async () => {
  at("start").disabled = true;
  try {
    player = await Player.open({ record: true });
    document.body.dataset.sound = await player.resume();
  } catch (error) {
    document.body.dataset.sound = error.message;
  }
});
at("start").disabled = false;
