// A client in JavaScript, on nothing but what Node brings along: one session, lines as they come.
import { createInterface } from "node:readline";
import { createWriteStream, writeSync } from "node:fs";

const [url, deadline] = [process.argv[2], Number(process.argv[3]) * 1000];
const tell = (event, utterance, more) =>
  writeSync(2, JSON.stringify({ event, utterance, ...more }) + "\n");

const lines = [];
let sent = 0, socket = null, inputEnded = false, closing = false, failed = false, warned = false;
let timer = null;

const unended = () => lines.filter((line) => !line.ended);
const end = (line, event, more) => {
  if (line.ended) return;
  line.ended = true;
  failed ||= event === "failed";
  tell(event, line.number, { audio_bytes: line.bytes, ...more });
};
const exit = () => process.exit(failed || unended().length ? 1 : 0);
const lose = (lastSeq) => {
  for (const line of unended())
    end(line, "failed", line.seq > lastSeq && !line.answered ? { processed: false } : {});
  exit();
};
const wait = () => {
  clearTimeout(timer);
  if (unended().length || closing) timer = setTimeout(() => lose(Infinity), deadline);
};
const send = (message) => { sent += 1; socket.send(JSON.stringify(message)); };
const ask = (line) => {
  line.seq = sent + 1;
  send({ text: line.text });
};
const goOn = () => {
  wait();
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  for (const line of lines) if (!line.seq) ask(line);
  if (inputEnded && !closing && !unended().length) { closing = true; send({ type: "close" }); wait(); }
};

// The receiver rule: a binary chunk is control if all of it is one object with a string type.
const control = (data) => {
  if (typeof data === "string") return JSON.parse(data);
  const bytes = new Uint8Array(data);
  if (bytes[0] !== 0x7b) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    const value = JSON.parse(text);
    return typeof value.type === "string" ? value : null;
  } catch { return null; }
};

let running = null;
const receive = (data) => {
  const message = control(data);
  const oldest = running ?? unended()[0];
  if (message === null) {
    if (!oldest) return;
    oldest.answered = true;
    if (!oldest.started) start(oldest, 24000, "pcm_s16le");
    const bytes = Buffer.from(data);
    if (bytes.length % 2 && !warned) { warned = true; tell("warning", undefined, { message: "odd chunk" }); }
    oldest.bytes += bytes.length;
    writeSync(1, bytes);
    return;
  }
  const line = message.seq === undefined ? oldest : lines.find((each) => each.seq === message.seq);
  if (message.type === "session_closed") {
    socket.close(1000);
    lose(message.last_seq);
  } else if (line && message.type === "synthesis_start") {
    running = line;
    start(line, message.sample_rate, message.format);
  } else if (line && message.type === "synthesis_complete") {
    running = null;
    end(line, "complete");
  } else if (line && message.type === "error") {
    if (running === line) running = null;
    end(line, "failed", { code: message.code });
  }
};
const start = (line, sample_rate, format) => {
  line.started = line.answered = true;
  tell("start", line.number, { sample_rate, format });
};

const input = createInterface({ input: process.stdin, crlfDelay: 0 });
input.on("line", (text) => {
  lines.push({ number: lines.length + 1, text, bytes: 0 });
  goOn();
});
input.on("close", () => { inputEnded = true; goOn(); });
socket = new WebSocket(url);
socket.binaryType = "arraybuffer";
socket.onopen = goOn;
socket.onmessage = (event) => { receive(event.data); goOn(); };
socket.onclose = () => lose(Infinity);
socket.onerror = () => lose(Infinity);
