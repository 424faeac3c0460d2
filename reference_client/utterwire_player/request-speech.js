// Speech by HTTP requests, one after the other: raw audio, or events that carry it in base64.

import { EventStream } from "./event-stream.js";
import { Speech } from "./utterwire-player.js";

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
    this.#request(line, aborter.signal).catch((error) => {
      if (error.name === "AbortError") return;
      // Whatever else may come of it.
      aborter.abort();
      const broken = "the endpoint closed before completing";
      const nobody = "the endpoint cannot be reached";
      const message = error instanceof Failed ? error.message : line.sink ? broken : nobody;
      this.failed(line, error.code ?? null, message);
    });
  }

  stop() {
    // Who leaves cancels.
    this.#aborter?.abort();
  }

  close() {
    this.isAlive = false;
    this.stop();
  }

  async #request(line, signal) {
    const headers = { "Content-Type": "application/json" };
    if (this.#events) headers.Accept = "text/event-stream";
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    const body = JSON.stringify({ text: line.text, ...line.fields });
    const response = await fetch(this.#url, { method: "POST", headers, body, signal });
    if (!response.ok) throw await refusal(response);
    if (this.#events) await this.#readEvents(line, response);
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

  async #readEvents(line, { body }) {
    const stream = new EventStream();
    for await (const bytes of parts(body)) {
      for (const { event, data } of stream.push(bytes)) {
        if (await this.#obey(line, event, JSON.parse(data))) return;
      }
    }
    throw new Failed(null, "the endpoint closed before completing");
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
        throw new Failed(fields.code, fields.message);
    }
    return false;
  }
}

async function* parts(body) {
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

async function refusal(response) {
  const told = await response.json().catch(() => ({}));
  const message = told.message ?? told.error ?? `HTTP status ${response.status}`;
  return new Failed(told.code ?? null, message);
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
