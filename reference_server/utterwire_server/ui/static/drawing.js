// Pictures of a measurement: the waterfall and the waveform.

import { soundAt } from "./measurement.js";

/** "85 ms", "1.24 s"; a dash for what is not known. */
export function told(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(2)} s`;
  return `${milliseconds >= 10 ? milliseconds.toFixed(0) : milliseconds.toFixed(1)} ms`;
}

const since = (earlier, later) =>
  earlier === null || later === null ? null : Math.max(0, later - earlier);

const STEPS = [500, 1000, 2000, 5000, 10000, 20000, 60000, 120000];

/** Draw the rows of `measurement` into the body of a table; `now` ends what has not ended. */
export function drawWaterfall(table, measurement, now) {
  const { rows, zero } = measurement;
  const end = Math.max(1000, ...rows.map((row) => latest(row, now) - zero)) * 1.02;
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, index) => {
    const line = body.rows[index] ?? emptyRow(body);
    fillRow(line, row, { zero, end, now });
  });
  const step = STEPS.find((it) => end / it <= 6) ?? 300000;
  const marks = [];
  // The last one needs room for its number.
  for (let at = 0; at <= 0.93 * end; at += step) marks.push(at);
  const axis = table.querySelector(".axis");
  axis.replaceChildren(...marks.map((at) => {
    const mark = document.createElement("span");
    mark.textContent = `${at / 1000} s`;
    mark.style.left = `${(100 * at) / end}%`;
    return mark;
  }));
}

function latest(row, now) {
  const known = [row.readyAt, row.sentAt, row.firstByteAt, row.lastByteAt, row.heardTo];
  const moment = Math.max(...known.map((at) => at ?? 0));
  if (row.heardAt !== null && row.heardTo === null) return Math.max(moment, now);
  return row.ended ? moment : Math.max(moment, now);
}

function emptyRow(body) {
  const line = body.insertRow();
  const head = document.createElement("th");
  head.scope = "row";
  line.append(head);
  for (let cell = 0; cell < 8; cell += 1) line.insertCell();
  const lane = document.createElement("div");
  lane.className = "lane";
  lane.setAttribute("aria-hidden", "true");
  line.cells[1].append(lane);
  line.cells[1].className = "picture";
  return line;
}

function fillRow(line, row, { zero, end, now }) {
  const [head, picture, ...numbers] = line.cells;
  const name = `${row.index + 1}. ${row.text}`;
  if (head.textContent !== name) {
    head.textContent = name;
    head.title = row.text;
  }
  const sound = soundAt(row);
  const heardTo = row.heardTo ?? (row.heardAt === null ? null : now);
  const bars = [
    ["text", row.beganAt, row.readyAt],
    ["queue", row.readyAt, row.sentAt ?? (row.ended ? null : now)],
    ["work", row.sentAt, row.firstByteAt ?? (row.ended ? null : now)],
    ["bytes", row.firstByteAt, row.lastByteAt ?? (row.ended ? null : now)],
    ["gap", row.gap > 0 ? row.heardAt - 1000 * row.gap : null, row.heardAt],
    ["heard", row.heardAt, heardTo],
  ];
  const spans = bars
    .filter(([, from, to]) => from !== null && to !== null)
    .map(([kind, from, to]) => {
      const bar = document.createElement("i");
      bar.className = kind;
      bar.style.left = `${(100 * (from - zero)) / end}%`;
      bar.style.width = `max(2px, ${(100 * Math.max(0, to - from)) / end}%)`;
      return bar;
    });
  if (sound !== null) {
    const mark = document.createElement("i");
    mark.className = "sound";
    mark.style.left = `${(100 * (sound - zero)) / end}%`;
    spans.push(mark);
  }
  picture.firstChild.replaceChildren(...spans);
  const values = [
    told(since(row.sentAt, row.firstByteAt)),
    told(since(row.sentAt, sound)),
    told(since(row.sentAt, row.renderedAt)),
    told(since(row.sentAt, row.heardAt)),
    row.gap > 0 ? told(1000 * row.gap) : "0",
    row.underruns > 0 ? `${row.underruns} (${told(1000 * row.stall)})` : "0",
    row.isCut || row.failure === "interrupted" ? "interrupted" : audioOf(row),
  ];
  numbers.forEach((cell, index) => {
    if (cell.textContent !== values[index]) cell.textContent = values[index];
  });
}

function audioOf({ failure, audioSeconds }) {
  const audio = audioSeconds === null ? "–" : `${audioSeconds.toFixed(2)} s`;
  return failure === null ? audio : `failed, ${audio}`;
}

const PEAK_S = 0.01;

/** The shape of all that was received, ten milliseconds to a peak, with where each one begins. */
export class Waveform {
  #peaks = [];
  #boundaries = [];
  #peak = 0;
  #filled = 0;

  clear() {
    this.#peaks = [];
    this.#boundaries = [];
    this.#peak = this.#filled = 0;
  }

  /** Seconds so far. */
  get seconds() {
    return this.#peaks.length * PEAK_S;
  }

  add({ id, samples, sampleRate }) {
    if (this.#boundaries.at(-1)?.id !== id) {
      this.#boundaries.push({ id, at: this.seconds });
    }
    const size = Math.round(sampleRate * PEAK_S);
    for (const sample of samples) {
      this.#peak = Math.max(this.#peak, Math.abs(sample));
      this.#filled += 1;
      if (this.#filled === size) {
        this.#peaks.push(this.#peak);
        this.#peak = this.#filled = 0;
      }
    }
  }

  /** Where, in seconds, the sound of `id` begins; null if there is none. */
  startOf(id) {
    return this.#boundaries.find((it) => it.id === id)?.at ?? null;
  }

  /** Where it ends, or ends for now. */
  endOf(id) {
    const index = this.#boundaries.findIndex((it) => it.id === id);
    return this.#boundaries[index + 1]?.at ?? this.seconds;
  }

  /** @param {number | null} heard seconds that were heard so far. */
  draw(canvas, heard) {
    const ratio = globalThis.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across;
      canvas.height = down;
    }
    const style = getComputedStyle(canvas);
    const paint = canvas.getContext("2d");
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.clearRect(0, 0, width, height);
    const middle = height / 2;
    const total = Math.max(this.#peaks.length, 1);
    const columns = Math.max(1, Math.floor(width / 3));
    const perColumn = Math.max(1, total / columns);
    const loud = style.getPropertyValue("--heard");
    const quiet = style.getPropertyValue("--ahead");
    for (let column = 0; column * perColumn < this.#peaks.length; column += 1) {
      const from = Math.floor(column * perColumn);
      const to = Math.max(from + 1, Math.floor((column + 1) * perColumn));
      const peak = Math.max(...this.#peaks.slice(from, to));
      const tall = Math.max(1, peak * (height - 8));
      paint.fillStyle = heard !== null && from * PEAK_S < heard ? loud : quiet;
      paint.fillRect((column * width) / columns, middle - tall / 2, 2, tall);
    }
    paint.fillStyle = style.getPropertyValue("--rule");
    for (const { at } of this.#boundaries) {
      paint.fillRect((at / PEAK_S / (columns * perColumn)) * width - 0.5, 0, 1, height);
    }
  }
}
