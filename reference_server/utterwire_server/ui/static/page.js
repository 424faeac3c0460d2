// The page: what is on it, and what happens when something is clicked.

import { SentenceCutter, split, tokensOf, typed } from "./agent.js";
import { Waveform, drawWaterfall, told } from "./drawing.js";
import { Measurement, between } from "./measurement.js";
import { RequestSpeech } from "./request-speech.js";
import { snippets } from "./snippets.js";
import { Player, Prebuffer, SocketSpeech, classify, saidBy } from "./utterwire-player.js";

const at = (id) => document.getElementById(id);
const BASE = new URL("./", document.baseURI);
const SESSION = "invocations-bidirectional-stream";
const ASK_EVERY_MS = 2000;
const ANSWER_MS = 10000;
const INTRODUCTION_MS = 15000; // A relay has ten seconds to get through.
const MOST_NAMES = 1000;

const HELD = "The browser has stopped the sound. It goes on when you come back, or speak anew.";

const SAMPLES = {
  short: "Hello! I am listening.",
  long:
    "The lighthouse keeper wrote a line each evening. He told of the wind, of ships that passed, " +
    "and of birds that rested on the rail. Some evenings had nothing to tell. Then he wrote that, " +
    "too, and drew the horizon below it. After forty years he had drawn it so often that he could " +
    "do it with closed eyes. It was never quite straight. Neither, he used to say, was the sea.",
  numbers:
    "Your order of 3 lamps at $24.50 each ships on 12 March. Call 555-0142 between 9:30 and 17:00. " +
    "The parcel weighs 2.4 kg, about 5 pounds.",
};

let server = null; // What `ui/state` told last.
let isGone = false;
let asking = null; // Aborts the question that is under way.
let refused = ""; // Why the server lets this page know nothing.
let offeredLast = ""; // What the choices were made of.
let player = null;
let speech = null;
let speechKey = "";
let measurement = null;
let starting = null; // What was clicked, while the sound is being opened.
let writing = null; // Aborts the agent that is being simulated.
let interruptedAt = null;
let isDirty = false;
const history = new Map(); // Settings -> runs
const waveform = new Waveform();
const remote = new Map(); // Endpoint -> what its `session` told
const spoken = new Map(); // id -> {element, words, base}

// --- the server ----------------------------------------------------------------------------------

function authorized() {
  const token = at("token").value.trim();
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function askServer() {
  asking?.abort();
  const aborter = (asking = new AbortController());
  const timer = setTimeout(() => aborter.abort(), ANSWER_MS);
  let answer = null;
  let status = 0;
  try {
    // By POST: a browser then says which origin the page is of, so that a name that somebody has
    // made to lead here learns nothing.
    const { signal } = aborter;
    const headers = authorized();
    const response = await fetch(new URL("ui/state", BASE), { method: "POST", headers, signal });
    status = response.status;
    answer = await response.json();
  } catch {
    // Nobody is there: told below.
  }
  clearTimeout(timer);
  if (asking !== aborter) return;
  asking = null;
  refused = status === 403 ? withAdvice(saidBy(answer?.error, "this page is not let in")) : "";
  if (status === 401) {
    showLocked();
    return;
  }
  isGone = status !== 200 || answer === null;
  if (!isGone) {
    server = answer;
    // While it loads, or after it began anew, it offers something else.
    const { voices, formats, profiles, endpoints, token, speed } = server;
    const offer = JSON.stringify([voices, formats, profiles, endpoints, token, speed]);
    if (offer !== offeredLast) fillChoices();
    offeredLast = offer;
  }
  showServer();
}

/** What a refusal says, and what helps against it. */
function withAdvice(said) {
  const isOrigin = said === "pages of this origin are not let in";
  return isOrigin ? `${said}; start the server with --allowed-origins ${location.origin}` : said;
}

function showLocked() {
  at("token-field").hidden = false;
  setStatus("unknown", "This server wants a token.");
  if (!server) {
    const why = at("token").value
      ? "The server does not know this token."
      : "This server wants a token: enter it above, and its voices appear.";
    notice(why, Boolean(at("token").value));
  }
  updateButtons();
}

function setStatus(status, text) {
  at("server").firstElementChild.dataset.status = status;
  if (at("server-text").textContent !== text) at("server-text").textContent = text;
}

function showServer() {
  if (refused) {
    setStatus("gone", sentence(refused));
    forgetState("–");
  } else if (isGone) {
    setStatus("gone", server ? "The server does not answer any more." : "The server does not answer.");
    forgetState("no answer");
  } else {
    setStatus(server.status, `${server.status} · engine ${server.engine} · ${server.version}`);
    const values = {
      "/ping": server.status,
      Sessions: String(server.sessions),
      "Open, with requests": `${server.guests} of ${server.max_guests}`,
      "Utterances queued": String(server.queue.utterances),
      "Characters queued": String(server.queue.characters),
      "Work queued": `${server.queue.seconds.toFixed(1)} s`,
      Profiles: server.profiles.join(", "),
    };
    describe(at("state"), values);
  }
  updateButtons();
}

/** Of what changes nothing is known any more. */
function forgetState(ping) {
  const values = { "/ping": ping };
  for (const { dataset } of at("state").children) {
    if (dataset.name !== "Profiles") values[dataset.name] ??= "–";
  }
  describe(at("state"), values);
}

function describe(list, values) {
  for (const [name, value] of Object.entries(values)) {
    let place = list.querySelector(`[data-name="${CSS.escape(name)}"]`);
    if (place === null) {
      place = document.createElement("div");
      place.dataset.name = name;
      place.append(document.createElement("dt"), document.createElement("dd"));
      place.firstChild.textContent = name;
      list.append(place);
    }
    if (place.lastChild.textContent !== value) place.lastChild.textContent = value;
  }
}

// --- choices -------------------------------------------------------------------------------------

function setOptions(select, values, labels = {}) {
  const before = select.value;
  select.replaceChildren(...values.map((value) => new Option(labels[value] ?? value, value)));
  if (values.includes(before)) select.value = before;
}

function fillChoices() {
  at("token-field").hidden = !server.token;
  if (offeredLast === "") notice("");
  const names = { "": "this server" };
  for (const { name, url } of server.endpoints) names[name] = url;
  setOptions(at("endpoint"), Object.keys(names).sort(), names);
  fillForEndpoint();
}

/** What the chosen endpoint offers. */
function offered() {
  const name = at("endpoint").value;
  if (!server) return null;
  if (name === "") return server;
  const session = remote.get(name);
  if (!session) return null;
  const rates = Object.fromEntries(session.formats.map((format) => [format, session.sample_rates]));
  const { min_speed: min, max_speed: max } = session.limits;
  return { ...session, formats: rates, speed: { min, max }, ...session.limits };
}

/** What of `session` can be used; null if it cannot, whatever an endpoint may have put into it. */
function understood({ voices, formats, sample_rates, profiles, limits }) {
  const names = (list) => (Array.isArray(list) ? list : [])
    .filter((name) => typeof name === "string" && name !== "").slice(0, MOST_NAMES);
  const rates = (Array.isArray(sample_rates) ? sample_rates : []).filter(Number.isFinite);
  const { min_speed: min, max_speed: max, max_text_chars: longest } = limits ?? {};
  if (names(voices).length === 0 || names(formats).length === 0) return null;
  const isSpeed = min > 0 && max >= min && max <= 100;
  return {
    voices: names(voices),
    formats: names(formats),
    sample_rates: rates,
    profiles: names(profiles),
    limits: {
      min_speed: isSpeed ? min : 0.5,
      max_speed: isSpeed ? max : 2,
      max_text_chars: Number.isInteger(longest) && longest > 0 ? longest : 4096,
    },
  };
}

function fillForEndpoint() {
  const offer = offered();
  const transports = ["websocket", "sse", "http"].filter((transport) => isPossible(transport));
  const labels = { websocket: "WebSocket, binary", sse: "Events (SSE), base64", http: "HTTP, /invocations" };
  setOptions(at("transport"), transports, labels);
  setOptions(at("voice"), offer?.voices ?? [""], { "": "its default" });
  setOptions(at("format"), offer ? Object.keys(offer.formats) : ["pcm_s16le"]);
  if (offer) {
    at("speed").min = offer.speed.min;
    at("speed").max = offer.speed.max;
  }
  showSnippets();
}

function isPossible(transport) {
  const isRemote = at("endpoint").value !== "";
  // A browser cannot give a WebSocket a header, so no token either.
  if (transport === "websocket") return !server.token;
  if (isRemote) return server.http_relay;
  return server.profiles.includes(transport);
}

async function chooseEndpoint() {
  const name = at("endpoint").value;
  // What is being spoken goes on, and can be interrupted still.
  if (!isSpeaking()) dropSpeech();
  fillForEndpoint();
  if (name === "" || remote.has(name) || !isPossible("websocket")) return;
  try {
    remote.set(name, await introduced(addressOf(name, SESSION, "ws")));
  } catch {
    notice("This endpoint tells nothing of itself: voice and format are its defaults.");
  }
  if (at("endpoint").value === name) fillForEndpoint();
}

/** What an endpoint tells of itself (the profile `negotiate`). */
function introduced(url) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    const timer = setTimeout(() => socket.close(), INTRODUCTION_MS);
    socket.onopen = () => socket.send('{"type":"hello","protocol_versions":[1]}');
    socket.onclose = () => {
      clearTimeout(timer);
      reject(new Error("no session"));
    };
    socket.onmessage = ({ data }) => {
      const { message } = classify(data);
      const told = message?.type === "session" ? understood(message) : null;
      if (told !== null) resolve(told);
      socket.onmessage = null;
      socket.send('{"type":"close"}');
    };
  });
}

function addressOf(name, path, scheme = "") {
  const url = new URL(name === "" ? path : `ui/relay/${name}/${path}`, BASE);
  if (scheme === "ws") url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

// --- speaking ------------------------------------------------------------------------------------

function notice(text, isError = false) {
  const place = at("notice");
  place.classList.toggle("error", isError);
  if (place.textContent !== text) place.textContent = text;
}

/** A message as a sentence. */
function sentence(words) {
  const bare = words.replace(/[.]+$/, "");
  return bare === "" ? words : `${bare[0].toUpperCase()}${bare.slice(1)}.`;
}

function isSpeaking() {
  return starting !== null || writing !== null || (measurement !== null && !measurement.isOver);
}

function updateButtons() {
  at("speak").disabled = !server || isGone;
  at("interrupt").disabled = !isSpeaking();
  at("export").disabled = !measurement || !measurement.rows.some((row) => row.firstByteAt !== null);
}

function dropSpeech() {
  speech?.close();
  speech = null;
}

function prebufferKey() {
  return `prebuffer ${at("endpoint").value} ${at("transport").value}`;
}

/** The browser's memory for this tab; some forbid it. */
function memory() {
  try {
    return globalThis.sessionStorage;
  } catch {
    return null;
  }
}

/** The player, made on the first click: before that a browser would keep it silent. */
async function openPlayer() {
  if (player === null) {
    const initial = Number(memory()?.getItem(prebufferKey())) || undefined;
    const opened = await Player.open({ prebuffer: new Prebuffer({ initial }) });
    listen(opened);
    player = opened;
  }
  const state = await player.resume();
  if (state !== "running") {
    throw new Error("The browser holds the sound back. Press Speak once more, or allow sound for this page.");
  }
  return player;
}

function listen(to) {
  to.addEventListener("samples", ({ detail }) => {
    if (spoken.has(detail.id)) waveform.add(detail);
  });
  to.addEventListener("begin", ({ detail }) => startWords(detail));
  to.addEventListener("end", ({ detail }) => finishWords(detail.id));
  to.addEventListener("resumed", ({ detail }) => {
    const line = spoken.get(detail.id);
    if (line?.base) line.base += 1000 * detail.seconds;
  });
  to.addEventListener("flushed", ({ detail }) => {
    // Of those that were begun since, nothing is lost.
    for (const id of detail.ids) {
      if (!spoken.get(id)?.element.classList.contains("heard")) loseSentence(id);
    }
    finishRun();
    if (interruptedAt === null) return;
    at("silent").textContent = told(Math.max(0, detail.audibleAt - interruptedAt));
    interruptedAt = null;
  });
  to.addEventListener("drained", () => finishRun());
  to.addEventListener("prebuffer", ({ detail }) => {
    memory()?.setItem(prebufferKey(), detail.seconds);
  });
  to.context.addEventListener("statechange", () => {
    if (to.context.state === "running") {
      if (at("notice").textContent === HELD) notice("");
    } else if (isSpeaking() && starting === null) {
      notice(HELD, true);
    }
  });
}

function openSpeech() {
  const transport = at("transport").value;
  const name = at("endpoint").value;
  const key = `${name} ${transport} ${at("token").value}`;
  if (speech?.isAlive && speechKey === key) return speech;
  speech?.close();
  speechKey = key;
  if (transport === "websocket") {
    speech = new SocketSpeech(new WebSocket(addressOf(name, SESSION, "ws")), player);
  } else {
    const events = transport === "sse";
    const url = addressOf(name, "invocations");
    speech = new RequestSpeech(url, player, { events, token: at("token").value.trim() });
  }
  follow(speech);
  return speech;
}

function follow(it) {
  it.addEventListener("marks", ({ detail }) => setWords(detail));
  it.addEventListener("cancelled", ({ detail }) => loseSentence(detail.id));
  it.addEventListener("complete", () => finishRun());
  it.addEventListener("failed", ({ detail }) => {
    loseSentence(detail.id);
    const kept = detail.seconds > 0 ? `: ${detail.seconds.toFixed(1)} s of audio kept` : "";
    notice(sentence(`${withAdvice(detail.message.replace(/[.]+$/, ""))}${kept}`), true);
    finishRun();
  });
}

async function speak() {
  const text = at("text").value;
  if (!/\S/.test(text)) {
    notice("There is nothing to speak: type or paste some text.", true);
    at("text").focus();
    return;
  }
  if (isSpeaking()) interrupt();
  notice("");
  const click = (starting = {});
  updateButtons();
  try {
    await openPlayer();
    if (starting === click) begin(text);
  } catch (error) {
    notice(error.message, true);
  }
  if (starting === click) starting = null;
  settle();
}

function begin(text) {
  measurement?.stop();
  const through = openSpeech();
  const isAgent = at("agent").checked;
  const rate = isAgent ? Math.max(1, Number(at("rate").value) || 30) : null;
  measurement = new Measurement(
    {
      madeBy: `utterwire page ${server.version}`,
      endpoint: endpointOf(at("endpoint").value),
      options: {
        transport: at("transport").value,
        depth: through.depth,
        pieces_per_s: rate,
        voice: at("voice").value || null,
        lead_s: player.prebuffer.seconds,
      },
    },
    () => (isDirty = true),
  );
  measurement.follow(through);
  waveform.clear();
  spoken.clear();
  at("spoken").replaceChildren();
  at("silent").textContent = "–";
  const fields = requestFields();
  const offer = offered();
  const longest = offer?.max_text_chars ?? 4096;
  const now = performance.now();
  const give = (sentence, beganAt, readyAt) => {
    for (const piece of split(sentence, longest)) say(through, piece, fields, beganAt, readyAt);
  };
  if (isAgent) {
    write(text, rate, give);
  } else if (at("cut").value === "whole") {
    give(text.trim(), now, now);
  } else {
    const cutter = new SentenceCutter(document.documentElement.lang);
    for (const sentence of [...cutter.feed(text), ...cutter.finish()]) give(sentence, now, now);
  }
  if (!isAgent && measurement.rows.length === 0) {
    notice("In this text there is nothing to speak.", true);
  }
  at("no-waterfall").hidden = true;
  at("waterfall-frame").hidden = at("legend").hidden = false;
  updateButtons();
}

function requestFields() {
  const fields = { speed: Number(at("speed").value), format: at("format").value };
  if (at("voice").value) fields.voice = at("voice").value;
  const claims = at("endpoint").value === "" ? server.profiles : (offered()?.profiles ?? []);
  if (at("transport").value === "websocket" && claims.includes("timing")) fields.marks = ["word"];
  return fields;
}

function endpointOf(name) {
  const url = name === "" ? BASE.href : server.endpoints.find((it) => it.name === name).url;
  return { name: name === "" ? "this server" : new URL(url).host, url: url.replace(/[?#].*/, "") };
}

/** The agent: tokens at a rate, and sentences out of them as soon as they are whole. */
async function write(text, rate, give) {
  const aborter = new AbortController();
  writing = aborter;
  const draft = document.createElement("span");
  draft.className = "sentence draft";
  at("spoken").append(draft);
  const cutter = new SentenceCutter(document.documentElement.lang);
  let beganAt = null;
  const cut = (sentences) => {
    const now = performance.now();
    for (const sentence of sentences) {
      give(sentence, beganAt ?? now, now);
      draft.textContent = "";
      beganAt = null;
    }
  };
  const token = (piece) => {
    beganAt ??= performance.now();
    draft.textContent += piece;
    const sentences = cutter.feed(piece);
    cut(sentences);
    if (sentences.length > 0) draft.textContent = ` ${cutter.held}`;
    at("spoken").append(draft);
  };
  await typed(text, rate, token, aborter.signal);
  draft.remove();
  if (!aborter.signal.aborted) cut(cutter.finish());
  if (writing === aborter) writing = null;
  updateButtons();
  finishRun();
}

function say(through, text, fields, beganAt, readyAt) {
  const index = measurement.rows.length;
  const element = document.createElement("span");
  element.className = "sentence unmarked";
  element.textContent = text;
  if (index > 0) at("spoken").append(" ");
  at("spoken").append(element);
  // The row is there before the events that tell of it.
  const id = through.nextId;
  spoken.set(id, { element, text, words: [], base: null });
  measurement.add({ id, index, text, beganAt, readyAt });
  through.speak(text, fields);
}

function interrupt() {
  if (!isSpeaking()) return;
  interruptedAt = performance.now();
  starting = null;
  writing?.abort();
  writing = null;
  speech?.interrupt();
  notice("Interrupted.");
  updateButtons();
}

/** Something ended. The measurement may hear of it later than the page: so not at once. */
function finishRun() {
  queueMicrotask(settle);
}

/** Remember a run that is over, and tell how far runs of the same settings lie apart. */
function settle() {
  isDirty = true;
  updateButtons();
  if (!measurement || writing || !measurement.isOver || measurement.isCounted) return;
  if (measurement.rows.some((row) => row.failure)) return;
  measurement.isCounted = true;
  const { first_byte_s: firstByte, heard_s: heard } = measurement.summary();
  if (heard === null) return;
  const key = JSON.stringify([measurement.about, measurement.rows.map((row) => row.text)]
    .map((it) => it.options ? { ...it.options, lead_s: 0, url: it.endpoint.url } : it));
  const runs = history.get(key) ?? [];
  runs.push({ firstByte: 1000 * firstByte, heard: 1000 * heard });
  history.set(key, runs);
  if (runs.length < 2) {
    at("spread").textContent = "";
    return;
  }
  const spread = (name) => {
    const values = runs.map((run) => run[name]).sort((a, b) => a - b);
    const half = values.length >> 1;
    const middle = (values[half] + values[values.length - 1 - half]) / 2;
    return `${told(middle)} (${told(values[0])} to ${told(values.at(-1))})`;
  };
  at("spread").textContent =
    `The same ${runs.length} times. Median and range: first byte ${spread("firstByte")}, ` +
    `heard ${spread("heard")}.`;
}

// --- words ---------------------------------------------------------------------------------------

function setWords({ id, words }) {
  const line = spoken.get(id);
  if (!line || words.length === 0) return;
  line.words.push(...words.map((word) => ({ ...word, element: null })));
  const points = Array.from(line.text);
  const parts = [];
  let done = 0;
  for (const word of line.words) {
    if (word.char_start < done || word.char_end > points.length) continue;
    parts.push(points.slice(done, word.char_start).join(""));
    word.element = document.createElement("span");
    word.element.className = "word";
    word.element.textContent = points.slice(word.char_start, word.char_end).join("");
    parts.push(word.element);
    done = word.char_end;
  }
  parts.push(points.slice(done).join(""));
  line.element.classList.remove("unmarked");
  line.element.replaceChildren(...parts);
}

function startWords({ id, audibleAt }) {
  const line = spoken.get(id);
  if (!line) return;
  line.base = audibleAt;
  line.element.classList.add("playing");
  showSentence(line.element);
}

/** Scroll the box, and not the page: its reader may be elsewhere. */
function showSentence(element) {
  const box = at("spoken");
  const [{ top, bottom }, shown] = [element.getBoundingClientRect(), box.getBoundingClientRect()];
  if (top < shown.top) box.scrollTop -= shown.top - top;
  else if (bottom > shown.bottom) box.scrollTop += bottom - shown.bottom;
}

function finishWords(id) {
  const line = spoken.get(id);
  if (!line) return;
  line.base = null;
  line.element.classList.replace("playing", "heard");
  for (const { element } of line.words) {
    element?.classList.remove("now");
    element?.classList.add("said");
  }
  isDirty = true;
}

function loseSentence(id) {
  const line = spoken.get(id);
  if (!line) return;
  line.base = null;
  line.element.classList.remove("playing");
  line.element.classList.add("lost");
  for (const { element } of line.words) element?.classList.remove("now");
}

function lightWords(now) {
  for (const { base, words } of spoken.values()) {
    if (base === null) continue;
    const heard = (now - base) / 1000;
    for (const { element, start_s: start, end_s: end } of words) {
      if (element === null) continue;
      element.classList.toggle("now", heard >= start && heard < end);
      element.classList.toggle("said", heard >= end);
    }
  }
}

// --- pictures ------------------------------------------------------------------------------------

function heardSeconds(now) {
  let seconds = null;
  for (const [id, { base, element }] of spoken) {
    const start = waveform.startOf(id);
    if (start === null) continue;
    if (base !== null) seconds = start + Math.max(0, now - base) / 1000;
    else if (element.classList.contains("heard")) seconds = Math.max(seconds ?? 0, waveform.endOf(id));
  }
  return seconds;
}

function draw() {
  requestAnimationFrame(draw);
  const now = performance.now();
  lightWords(now);
  const isMoving = measurement !== null && !measurement.isOver;
  if (!isDirty && !isMoving) return;
  isDirty = false;
  waveform.draw(at("waveform"), heardSeconds(now));
  if (measurement === null || measurement.rows.length === 0) return;
  drawWaterfall(at("waterfall"), measurement, now);
  const summary = measurement.summary();
  const ms = (seconds) => (seconds === null ? "–" : told(1000 * seconds));
  const first = measurement.rows.find((row) => row.firstByteAt !== null);
  show("first-byte", ms(summary.first_byte_s));
  show("first-sound", ms(summary.first_sound_s));
  show("rendered", first ? ms(between(first.sentAt, first.renderedAt)) : "–");
  show("heard", first ? ms(between(first.sentAt, first.heardAt)) : "–");
  show("gaps", summary.gaps ? `${summary.gaps} (${ms(summary.gap_s)})` : "0");
  show("underruns", summary.underruns ? `${summary.underruns} (${ms(summary.stall_s)})` : "0");
  show("buffer", player ? told(1000 * player.bufferedSeconds) : "–");
  show("prebuffer", player ? told(1000 * player.prebuffer.seconds) : "–");
}

function show(id, text) {
  const place = at(id);
  if (place.textContent !== text) place.textContent = text;
}

// --- export and snippets -------------------------------------------------------------------------

function exportDocument() {
  const text = `${JSON.stringify(measurement.document(), null, 2)}\n`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const stamp = measurement.startedWhen.toISOString().replace(/[:.]/g, "-");
  link.download = `utterwire-latency-${stamp}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

let tab = 0;

function showSnippets() {
  const address = BASE.href.replace(/[/]$/, "");
  const first = tokensOf(at("text").value).join("").trim().split("\n")[0];
  const text = first.length > 60 ? `${first.slice(0, 60).replace(/\s\S*$/, "")}.` : first || "Hello.";
  const all = snippets({
    http: address,
    websocket: address.replace(/^http/, "ws"),
    text,
    voice: at("endpoint").value === "" ? at("voice").value : "",
    isSecret: Boolean(server?.token),
  });
  const tabs = at("tabs");
  if (tabs.children.length === 0) {
    all.forEach(({ name }, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.id = `tab-${index}`;
      button.role = "tab";
      button.textContent = name;
      button.setAttribute("aria-controls", "snippet-panel");
      button.addEventListener("click", () => chooseTab(index));
      tabs.append(button);
    });
  }
  Array.from(tabs.children).forEach((button, index) => {
    button.setAttribute("aria-selected", String(index === tab));
    button.tabIndex = index === tab ? 0 : -1;
  });
  at("snippet-panel").setAttribute("aria-labelledby", `tab-${tab}`);
  at("snippet").textContent = all[tab].code;
}

function chooseTab(index) {
  const tabs = at("tabs").children;
  tab = (index + tabs.length) % tabs.length;
  at("copied").textContent = "";
  showSnippets();
}

async function copySnippet() {
  try {
    await navigator.clipboard.writeText(at("snippet").textContent);
    at("copied").textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(at("snippet"));
    at("copied").textContent = "Marked: copy it with the keyboard.";
  }
}

// --- begin ---------------------------------------------------------------------------------------

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!at("speak").disabled) speak();
});
at("interrupt").addEventListener("click", interrupt);
at("export").addEventListener("click", exportDocument);
at("copy").addEventListener("click", copySnippet);
at("endpoint").addEventListener("change", chooseEndpoint);
at("voice").addEventListener("change", showSnippets);
at("text").addEventListener("change", showSnippets);
at("token").addEventListener("change", askServer);
at("agent").addEventListener("change", () => {
  at("rate").disabled = !at("agent").checked;
  at("cut").disabled = at("agent").checked;
});
at("speed").addEventListener("input", () => {
  at("speed-shown").textContent = Number(at("speed").value).toFixed(1);
});
at("samples").addEventListener("click", ({ target }) => {
  const sample = SAMPLES[target.dataset.sample];
  if (sample === undefined) return;
  at("text").value = sample;
  showSnippets();
});
at("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  chooseTab(tab + step);
  at(`tab-${tab}`).focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
  else if (event.key === "Escape") interrupt();
});
new ResizeObserver(() => (isDirty = true)).observe(at("waveform"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (isDirty = true));
document.addEventListener("visibilitychange", () => {
  // Who comes back from elsewhere may find the sound stopped.
  if (!document.hidden && isSpeaking() && starting === null) player?.resume();
});
setInterval(() => {
  if (!document.hidden && asking === null) askServer();
}, ASK_EVERY_MS);
showSnippets();
askServer();
requestAnimationFrame(draw);
