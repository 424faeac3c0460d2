// Speech by HTTP requests, one after the other: raw audio, or events that carry it in base64.

import { EventStream } from "./event-stream.js";
import { Speech, saidBy } from "./utterwire-player.js";

const LONGEST_REFUSAL = 65536;
const LINGER_MS = 1000; // So long a body may go on after its last event.

class Failed extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** As `SocketSpeech`, by `POST` to `url`; `events` asks for server-sent events. */
export class RequestSpeech extends Speech {
  #url;
  #events;
  #token;
  #aborter = null;
  isReady = true;
  isAlive = true;

  constructor(url, player, { events = false, token = "" } = {}) {
    super(player, { depth: 1 });
    this.#url = url;
    this.#events = events;
    this.#token = token;
  }

  ask(line) {
    const aborter = new AbortController();
    this.#aborter = aborter;
    this.#request(line, aborter).catch((error) => {
      if (error.name === "AbortError") return;
      // Whatever else may come of it.
      aborter.abort();
      const broken = "the endpoint closed before completing";
      const nobody = "the endpoint cannot be reached";
      const known = error instanceof Failed || error instanceof RangeError;
      const message = known ? error.message : line.sink ? broken : nobody;
      this.failed(line, error.code ?? null, message);
    });
  }

  stop() {
    // Who leaves cancels.
    this.#aborter?.abort();
  }

  /** Leave in order: all that was given is spoken. */
  close() {
    this.isAlive = false;
  }

  async #request(line, aborter) {
    const { signal } = aborter;
    const headers = { "Content-Type": "application/json" };
    if (this.#events) headers.Accept = "text/event-stream";
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    const body = JSON.stringify({ text: line.text, ...line.fields });
    const response = await fetch(this.#url, { method: "POST", headers, body, signal });
    if (!response.ok) throw await refusal(response);
    if (this.#events) await this.#readEvents(line, response, aborter);
    else await this.#readAudio(line, response);
  }

  async #readAudio(line, { headers, body }) {
    this.started(line, {
      sample_rate: Number(headers.get("Utterwire-Sample-Rate")) || undefined,
      format: headers.get("Utterwire-Format") ?? undefined,
      voice: headers.get("Utterwire-Voice"),
    });
    for await (const bytes of parts(body)) await this.heard(line, bytes);
    await this.completed(line);
  }

  async #readEvents(line, { body }, aborter) {
    const stream = new EventStream();
    let timer = null;
    for await (const bytes of parts(body)) {
      // Read to its end, so that the next request has its connection.
      for (const { event, data } of timer === null ? stream.push(bytes) : []) {
        if (!EVENTS.has(event) || !(await this.#obey(line, event, fieldsOf(data)))) continue;
        timer = setTimeout(() => aborter.abort(), LINGER_MS);
        break;
      }
    }
    if (timer === null) throw new Failed(null, "the endpoint closed before completing");
    clearTimeout(timer);
  }

  /** Whether it was the last event. */
  async #obey(line, event, fields) {
    switch (event) {
      case "audio_stream_start":
        this.started(line, fields);
        break;
      case "audio_chunk":
        await this.heard(line, fromBase64(fields.data));
        break;
      case "audio_stream_end":
        await this.completed(line, { total_duration_s: fields.duration_s });
        return true;
      case "error":
        throw new Failed(fields.code ?? null, saidBy(fields.message, "the endpoint failed"));
    }
    return false;
  }
}

const EVENTS = new Set(["audio_stream_start", "audio_chunk", "audio_stream_end", "error"]);

/** @throws {Failed} if it is no object in JSON. */
function fieldsOf(data) {
  try {
    const fields = JSON.parse(data);
    if (typeof fields === "object" && fields !== null) return fields;
  } catch {
    // Told below.
  }
  throw new Failed(null, "the endpoint sent an event that cannot be read");
}

/** Who stops taking them lets go of the connection: browsers have six of them. */
async function* parts(body) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function refusal(response) {
  let told = null;
  try {
    const decoder = new TextDecoder();
    let text = "";
    for await (const bytes of parts(response.body)) {
      text += decoder.decode(bytes, { stream: true });
      if (text.length > LONGEST_REFUSAL) break;
    }
    told = JSON.parse(text);
  } catch {
    // The status says enough.
  }
  const message = saidBy(told?.message ?? told?.error, `HTTP status ${response.status}`);
  return new Failed(told?.code ?? null, message);
}

function fromBase64(text) {
  let characters;
  try {
    characters = atob(text);
  } catch {
    throw new Failed(null, "the endpoint sent an event that cannot be read");
  }
  return Uint8Array.from(characters, (character) => character.charCodeAt(0));
}
