"""The page in a browser: its player to the sample, its transports, and what it tells of failures.

Nothing here depends on how fast the machine is: underruns may come, and are then accounted for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from utterwire_schemas import octets, validator, vectors
from utterwire_server.encoders.g711 import ALAW, MULAW

WAIT_MS = 60_000

#: Loaded into the page before each script; `record` collects what a player tells.
TOOLS = """
const tools = {
  at: (path) => import(new URL('ui/' + path, document.baseURI)),
  record(player) {
    const told = { events: [], blocks: [] };
    for (const name of ['begin', 'end', 'underrun', 'resumed', 'skipped', 'drained', 'flushed'])
      player.addEventListener(name, ({ detail }) => told.events.push({ name, ...detail }));
    player.addEventListener('rendered', ({ detail }) => told.blocks.push(detail));
    told.until = (name, count = 1) => new Promise((resolve) => {
      const look = () => {
        if (told.events.filter((it) => it.name === name).length >= count) resolve();
      };
      player.addEventListener(name, look);
      look();
    });
    // The samples of frames [from, to), without underruns and what the browser left out.
    told.between = (from, to) => {
      const start = told.blocks[0].frame;
      const last = told.blocks.at(-1);
      // While a context starts, quanta are left out; later a browser may, and tells.
      const all = new Float32Array(last.frame + last.samples.length - start);
      for (const { frame, samples } of told.blocks) all.set(samples, frame - start);
      const skips = told.events.filter((it) => it.name === 'skipped');
      const holes = skips.map(({ frame, frames }) => [frame, frames]);
      let dry = null;
      for (const event of told.events) {
        if (event.name === 'underrun') dry = event.frame;
        if (event.name === 'resumed' && event.frames > 0) holes.push([dry, event.frames]);
      }
      const kept = [];
      for (let frame = from; frame < to; frame += 1)
        if (!holes.some(([at, frames]) => frame >= at && frame < at + frames))
          kept.push(all[frame - start]);
      return kept;
    };
    return told;
  },
  random(seed) {
    // xorshift32: the same everywhere.
    return (limit) => {
      seed ^= seed << 13; seed ^= seed >>> 17; seed ^= seed << 5;
      return (seed >>> 0) % limit;
    };
  },
};
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium")
    options = ["no-sandbox", "disable-gpu", "disable-background-networking", "disable-sync"]
    # A page may make sound only after somebody has clicked into it.
    options += ["no-first-run", "autoplay-policy=document-user-activation-required"]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=[f"--{option}" for option in options]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serving(*arguments: str, token: str | None = None) -> Iterator[str]:
    """A server in a process of its own; its address."""
    command = [sys.executable, "-m", "utterwire_server", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if token is not None:
        environment["UTTERWIRE_TOKEN"] = token
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            port = 0
            for line in process.stderr:
                entry = json.loads(line)
                port = entry.get("port", port)
                if entry["event"] == "ready":
                    break
            assert port, "the server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    # Nothing listens at the discard port.
    with serving("--allow-endpoint", "ws://127.0.0.1:9") as url:
        yield url


class Page:
    """A page, and what it complained of."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(url)
        page.wait_for_selector("#voice option:nth-child(2)", state="attached")

    def run(self, script: str, argument: Any = None) -> Any:
        """The value of an async script; `given` is the argument."""
        return self.page.evaluate(f"async (given) => {{ {TOOLS} {script} }}", argument)

    def speak(self, text: str, **choices: str) -> None:
        for name, value in choices.items():
            self.page.select_option(f"#{name}", value)
        self.page.fill("#text", text)
        self.page.click("#speak")

    def finished(self) -> None:
        self.page.wait_for_selector("#interrupt:disabled")

    def export(self) -> Any:
        with self.page.expect_download() as download:
            self.page.click("#export")
        return json.loads(Path(download.value.path()).read_text(encoding="utf-8"))


@pytest.fixture
def page(chromium: Any, server: str) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    try:
        opened = Page(context.new_page(), server + "/")
        yield opened
        # Nothing of elsewhere is asked for.
        assert not [url for url in opened.asked if not url.startswith(("data:", "blob:", server))]
    finally:
        context.close()


# --- reading --------------------------------------------------------------------------------------


def test_chunks_are_told_apart_as_the_vectors_say(page: Page) -> None:
    rows = vectors("classification")
    found = page.run(
        """
        const { classify } = await tools.at('utterwire-player.js');
        return given.map(({ hex, frame }) => {
          const bytes = Uint8Array.from(hex.match(/../g) ?? [], (it) => parseInt(it, 16));
          const chunk = classify(bytes, frame);
          return [chunk.kind, chunk.kind === 'audio' ? chunk.bytes.length : null];
        });
        """,
        [{"hex": octets(row["chunk"]).hex(), "frame": row["frame"]} for row in rows],
    )
    for row, (kind, length) in zip(rows, found, strict=True):
        assert row["receiver"] in (kind, "either"), row["id"]
        if kind == "audio":
            assert length == len(octets(row["chunk"])), row["id"]


def test_event_streams_are_read_as_the_vectors_say_however_they_are_cut(page: Page) -> None:
    rows = vectors("event-streams")
    found = page.run(
        """
        const { EventStream } = await tools.at('event-stream.js');
        return given.map((hex) => {
          const bytes = Uint8Array.from(hex.match(/../g) ?? [], (it) => parseInt(it, 16));
          return [1, 2, 7, bytes.length + 1].map((size) => {
            const stream = new EventStream();
            const events = [];
            for (let at = 0; at < bytes.length; at += size)
              events.push(...stream.push(bytes.subarray(at, at + size)));
            return events;
          });
        });
        """,
        [octets(row["body"]).hex() for row in rows],
    )
    for row, cuts in zip(rows, found, strict=True):
        for events in cuts:
            assert events == row["events"], row["id"]


@pytest.mark.parametrize("format", ["mulaw", "alaw"])
def test_companded_samples_are_those_of_the_tables(page: Page, format: str) -> None:
    found = page.run(
        """
        const { decoderOf } = await tools.at('sound-formats.js');
        return Array.from(decoderOf(given).push(Uint8Array.from({ length: 256 }, (_, i) => i)));
        """,
        format,
    )
    samples = np.array([round(32_768 * value) for value in found], np.int16).view(np.uint16)
    codes = (MULAW if format == "mulaw" else ALAW)[samples]
    # Both of mu-law's zeros are zero.
    wanted = [0xFF if format == "mulaw" and code == 0x7F else code for code in range(256)]
    assert codes.tolist() == wanted


def test_resampling_keeps_a_tone_and_does_not_depend_on_cuts(page: Page) -> None:
    length, same, worst = page.run(
        """
        const { Resampler } = await tools.at('sound-formats.js');
        const tone = (rate, count) =>
          Float32Array.from({ length: count }, (_, i) => Math.sin(2764.6 * i / rate) / 2);
        const through = (size) => {
          const resampler = new Resampler(8000, 24000);
          const made = [];
          const input = tone(8000, 4000);
          for (let at = 0; at < input.length; at += size)
            made.push(...resampler.push(input.subarray(at, at + size)));
          return [...made, ...resampler.finish()];
        };
        const whole = through(4000);
        const wanted = tone(24000, 12000);
        let worst = 0;
        for (let at = 500; at < 11500; at += 1)
          worst = Math.max(worst, Math.abs(whole[at] - wanted[at]));
        const cut = through(37);
        return [whole.length, cut.every((value, at) => value === whole[at]), worst];
        """
    )
    assert length == 12_000
    assert same
    assert worst < 0.002


# --- what an endpoint may say ---------------------------------------------------------------------

#: A session without a network, and a player without sound.
STAND_INS = """
const { SocketSpeech } = await tools.at('utterwire-player.js');
const player = {
  bufferedSeconds: 0, begun: [], written: 0, roomy: null,
  begin({ id, sampleRate }) {
    player.begun.push([id, sampleRate]);
    return { seconds: 0, write(bytes) { player.written += bytes.length; }, async end() {} };
  },
  flush() {},
  room: () => new Promise((resolve) => { player.roomy = resolve; }),
};
const socket = Object.assign(new EventTarget(), {
  readyState: WebSocket.OPEN, sent: [],
  send(text) { socket.sent.push(JSON.parse(text)); },
  close() { socket.readyState = WebSocket.CLOSED; },
});
const speech = new SocketSpeech(socket, player);
const told = [];
for (const name of ['start', 'marks', 'complete', 'failed', 'cancelled'])
  speech.addEventListener(name, ({ detail }) => told.push([name, detail]));
const say = (data) => socket.dispatchEvent(new MessageEvent('message', {
  data: data instanceof Uint8Array ? data.buffer : JSON.stringify(data),
}));
const settled = () => new Promise((resolve) => setTimeout(resolve));
"""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"type": "error", "message": 5}, "the endpoint failed"),
        ({"type": "error", "message": " \n"}, "the endpoint failed"),
        ({"type": "error"}, "the endpoint failed"),
        ({"type": "error", "message": "a\nb"}, "a b"),
        ({"type": "error", "message": "\U0001f600" * 5_000}, "\U0001f600" * 300 + "\u2026"),
        ({"type": "synthesis_start", "sample_rate": 0}, "sample rate that cannot be played"),
        ({"type": "synthesis_start", "sample_rate": -24_000}, "sample rate that cannot be played"),
        ({"type": "synthesis_start", "sample_rate": "many"}, "sample rate that cannot be played"),
        ({"type": "synthesis_start", "sample_rate": 1e9}, "sample rate that cannot be played"),
        ({"type": "cancelled"}, "the endpoint cancelled it"),
        ({"type": "session_closed", "reason": {}}, "ended the session (no reason)"),
    ],
)
def test_whatever_an_endpoint_says_an_utterance_ends_and_says_why(
    page: Page, message: dict[str, Any], words: str
) -> None:
    told = page.run(
        STAND_INS + "speech.speak('Hello.'); say({ seq: 1, ...given }); return told;", message
    )
    assert [name for name, _ in told] == ["failed"]
    assert words in told[0][1]["message"]
    assert len(told[0][1]["message"]) <= 700
    assert page.complaints == []


def test_words_that_make_no_sense_are_left_out(page: Page) -> None:
    word = {"text": "Hello.", "start_s": 0, "end_s": 0.3, "char_start": 0, "char_end": 6}
    bad: list[Any] = [None, 5, {}, {**word, "char_end": 0}, {**word, "start_s": "0"}]
    bad += [{**word, "char_start": 0.5}, {**word, "end_s": -1}]
    found = page.run(
        STAND_INS
        + """
        speech.speak('Hello.');
        for (const words of given) say({ type: 'marks', seq: 1, words });
        return told.map(([, { words }]) => words);
        """,
        [[word, *bad], bad, "words", None],
    )
    # A string for a number is as good as the number to a browser.
    assert found == [[word, bad[4]], [bad[4]]]


def test_without_seq_what_was_interrupted_is_not_taken_for_what_came_after(page: Page) -> None:
    told, written = page.run(
        STAND_INS
        + """
        speech.speak('Old.');
        say({ type: 'synthesis_start' });
        speech.interrupt();
        speech.speak('New.');
        say(new Uint8Array(1000));
        say({ type: 'synthesis_complete' });
        say({ type: 'synthesis_start' });
        say(new Uint8Array(10));
        say({ type: 'synthesis_complete' });
        await settled();
        return [told.map(([name, { id }]) => [name, id.slice(-1)]), player.written];
        """
    )
    assert told == [["start", "1"], ["cancelled", "1"], ["start", "2"], ["complete", "2"]]
    assert written == 10


def test_all_that_was_given_is_asked_for_before_the_end(page: Page) -> None:
    types = page.run(
        STAND_INS
        + """
        for (let number = 1; number <= 5; number += 1) speech.speak(`${number}.`);
        speech.close();
        for (let seq = 1; seq <= 5; seq += 1) say({ type: 'synthesis_complete', seq });
        await settled();
        return [socket.sent.map(({ type }) => type), told.length, speech.isAlive];
        """
    )
    assert types == [["synthesize"] * 5 + ["close"], 5, False]


def test_no_more_is_asked_for_than_the_player_has_room_for(page: Page) -> None:
    counts = page.run(
        STAND_INS
        + """
        player.bufferedSeconds = 60;
        speech.speak('One.');
        speech.speak('Two.');
        const before = socket.sent.length;
        player.bufferedSeconds = 1;
        player.roomy();
        await settled();
        return [before, socket.sent.length];
        """
    )
    assert counts == [0, 2]


def test_audio_without_an_end_is_not_kept(page: Page) -> None:
    told, written, sent = page.run(
        STAND_INS
        + """
        speech.speak('Hello.');
        say({ type: 'synthesis_start', seq: 1 });
        const part = new Uint8Array(2 ** 24);
        for (let count = 0; count < 9; count += 1) say(part);
        return [told.map(([name]) => name), player.written, socket.sent.at(-1).type];
        """
    )
    assert told == ["start", "failed"]
    assert written <= 2**27
    assert sent == "cancel"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("event: audio_chunk\ndata: {\n\n", "the endpoint sent an event that cannot be read"),
        ("event: audio_chunk\ndata: null\n\n", "the endpoint sent an event that cannot be read"),
        (
            'event: audio_chunk\ndata: {"data": "?"}\n\n',
            "the endpoint sent an event that cannot be read",
        ),
        ('event: error\ndata: {"message": []}\n\n', "the endpoint failed"),
        ("data: [DONE]\n\n", "the endpoint closed before completing"),
        ("data: " + "x" * (2**24 + 1), "the endpoint sends an event that is too long"),
        ("event: audio_stream_end\ndata: {}\n\nmore, and more", None),
    ],
)
def test_a_stream_of_events_is_left_once_it_says_no_more(
    page: Page, body: str, words: str | None
) -> None:
    told, left = page.run(
        STAND_INS
        + """
        const { RequestSpeech } = await tools.at('request-speech.js');
        let left = false;
        const goesOn = !given.startsWith('data: [');
        globalThis.fetch = async (_, { signal }) => new Response(new ReadableStream({
          start(controller) {
            signal.addEventListener('abort', () => { left = true; });
            controller.enqueue(new TextEncoder().encode(given));
            if (!goesOn) controller.close();
          },
          cancel() { left = true; },
        }));
        const asked = new RequestSpeech('/', player, { events: true });
        const ended = new Promise((resolve) => {
          asked.addEventListener('complete', () => resolve(null));
          asked.addEventListener('failed', ({ detail }) => resolve(detail.message));
        });
        asked.speak('Hello.');
        const message = await ended;
        while (!left && goesOn) await settled();
        return [message, left || !goesOn];
        """,
        body,
    )
    assert told == words
    assert left


# --- the audio thread -----------------------------------------------------------------------------

WORKLET = (
    Path(__file__).resolve().parents[2]
    / "reference_client"
    / "utterwire_player"
    / "player-worklet.js"
).read_text(encoding="utf-8")

#: The processor with a clock that is turned by hand: `turn(n)` renders n quanta of 128 frames.
BY_HAND = (
    """
let currentFrame = 0;
let Processor;
class AudioWorkletProcessor { port = { postMessage: (it) => told.push(it) }; }
const registerProcessor = (_, it) => { Processor = it; };
const told = [];
"""
    + WORKLET
    + """
const processor = new Processor({ processorOptions: { capacity: 1024, prebuffer: 0 } });
const out = [];
let goesOn = true;
const turn = (count) => {
  for (let quantum = 0; quantum < count; quantum += 1) {
    const block = new Float32Array(128);
    goesOn = processor.process([], [[block]]);
    out.push(...block);
    currentFrame += 128;
  }
};
const give = (...messages) => messages.forEach((data) => processor.port.onmessage({ data }));
const begin = (id) => ({ type: 'begin', id });
const end = (id) => ({ type: 'end', id });
const audio = (length) => ({ type: 'audio', samples: new Float32Array(length).fill(0.5) });
const events = () => told.filter(({ type }) => type !== 'level').map(
  ({ type, id = null, frame, frames = null }) => [type, id, frame, frames]);
turn(8);
"""
)


def test_silence_between_two_utterances_is_no_underrun_of_the_first(page: Page) -> None:
    events = page.run(
        BY_HAND
        + """
        give(begin('a'), audio(300));
        turn(6);
        // Its end comes late, and with it all of the next one.
        give(end('a'), begin('b'), audio(100), end('b'));
        turn(2);
        return events();
        """
    )
    assert events == [
        ["begin", "a", 1024, None],
        ["underrun", None, 1324, None],
        ["resumed", None, 1324, 0],
        ["end", "a", 1324, None],
        ["drained", None, 1324, None],
        ["begin", "b", 1792, None],
        ["end", "b", 1892, None],
        ["drained", None, 1892, None],
    ]


def test_an_underrun_that_is_interrupted_has_been_one(page: Page) -> None:
    events = page.run(
        BY_HAND
        + """
        give(begin('a'), audio(128));
        turn(3);
        give({ type: 'flush' });
        turn(1);
        return events();
        """
    )
    assert events == [
        ["begin", "a", 1024, None],
        ["underrun", None, 1152, None],
        ["resumed", None, 1408, 256],
        ["flushed", None, 1408, None],
    ]


def test_the_processor_ends_when_it_is_told(page: Page) -> None:
    assert page.run(BY_HAND + "give({ type: 'stop' }); turn(1); return goesOn;") is False


@pytest.mark.slow
def test_every_frame_is_accounted_for_whatever_comes_when(page: Page) -> None:
    wrong = page.run(
        BY_HAND
        + """
        const random = tools.random(77);
        const wrong = [];
        let sent = 0;
        for (let number = 0; number < 300; number += 1) {
          const before = told.length;
          give(begin(number));
          const sizes = Array.from({ length: 1 + random(4) }, () => 1 + random(250));
          for (const size of sizes) {
            give(audio(size));
            turn(random(5));
          }
          give(end(number));
          const length = sizes.reduce((sum, it) => sum + it, 0);
          sent += length;
          turn(12);
          const mine = told.slice(before);
          const at = (type) => mine.find((it) => it.type === type && it.id === number).frame;
          const late = mine.filter(({ type }) => type === 'resumed')
            .reduce((sum, { frames }) => sum + frames, 0);
          if (at('end') - at('begin') !== length + late) wrong.push(number);
        }
        const heard = out.filter((it) => it === 0.5).length;
        return [wrong, heard - sent];
        """
    )
    assert wrong == [[], 0]


# --- playing --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_rendered_is_what_was_sent_to_the_sample(page: Page) -> None:
    page.page.click("h1")
    told = page.run(
        """
        const { Player } = await tools.at('utterwire-player.js');
        const player = await Player.open({ record: true });
        const told = tools.record(player);
        await player.resume();
        const random = tools.random(20260101);
        const sent = new Map();
        for (let number = 0; number < 100; number += 1) {
          const sample = () => random(65536) - 32768;
          const samples = Int16Array.from({ length: 1 + random(1500) }, sample);
          const bytes = new Uint8Array(samples.buffer);
          const utterance = player.begin({ id: number });
          sent.set(number, samples);
          // Of one byte, too, and so in the middle of a sample.
          const most = [1 + random(9), 1 + random(400), 4096][random(3)];
          for (let at = 0; at < bytes.length; ) {
            const size = 1 + random(most);
            utterance.write(bytes.slice(at, at + size));
            at += size;
          }
          await utterance.end();
        }
        await told.until('end', 100);
        await told.until('drained');
        const wrong = [];
        for (const [id, samples] of sent) {
          const from = told.events.find((it) => it.name === 'begin' && it.id === id).frame;
          const to = told.events.find((it) => it.name === 'end' && it.id === id).frame;
          const heard = told.between(from, to);
          const same = heard.length === samples.length &&
            heard.every((value, at) => value === samples[at] / 32768);
          if (!same) wrong.push([id, samples.length, heard.length]);
        }
        const holes = told.events.filter((it) => it.name === 'resumed').map((it) => it.frames);
        const stats = player.stats;
        await player.close();
        return { wrong, holes, stats };
        """
    )
    assert told["wrong"] == []
    assert told["stats"]["underrunFrames"] == sum(told["holes"])


def test_an_underrun_is_counted_to_the_sample_and_makes_the_prebuffer_grow(page: Page) -> None:
    page.page.click("h1")
    told = page.run(
        """
        const { Player } = await tools.at('utterwire-player.js');
        const player = await Player.open({ record: true });
        const told = tools.record(player);
        await player.resume();
        const before = player.prebuffer.seconds;
        const utterance = player.begin({ id: 'a' });
        const samples = Int16Array.from({ length: 3000 }, (_, i) => 1000 + i);
        const bytes = new Uint8Array(samples.buffer);
        utterance.write(bytes.slice(0, 2000));
        await told.until('underrun');
        utterance.write(bytes.slice(2000));
        await utterance.end();
        await told.until('drained');
        const at = (name) => told.events.find((it) => it.name === name);
        const heard = told.between(at('begin').frame, at('end').frame);
        return {
          span: at('end').frame - at('begin').frame,
          frames: at('resumed').frames,
          stats: player.stats,
          same: heard.length === 3000 && heard.every((value, i) => value === samples[i] / 32768),
          grown: player.prebuffer.seconds / before,
        };
        """
    )
    assert told["same"]
    stats = told["stats"]
    assert (stats["underruns"], stats["underrunFrames"]) == (1, told["frames"])
    assert told["span"] == 3000 + told["frames"] + stats["skippedFrames"]
    assert told["grown"] >= 2


def test_a_flush_is_silence_at_once_and_nothing_old_comes_after(page: Page) -> None:
    page.page.click("h1")
    told = page.run(
        """
        const { Player } = await tools.at('utterwire-player.js');
        const player = await Player.open({ record: true });
        const told = tools.record(player);
        await player.resume();
        const loud = new Uint8Array(Int16Array.from({ length: 48000 }, () => 20000).buffer);
        const old = player.begin({ id: 'old' });
        old.write(loud);
        await told.until('begin');
        player.flush();
        old.write(loud);
        await old.end();
        await told.until('flushed');
        const next = player.begin({ id: 'new' });
        next.write(new Uint8Array(Int16Array.from({ length: 600 }, () => 7).buffer));
        await next.end();
        await told.until('drained');
        const flushed = told.events.find((it) => it.name === 'flushed').frame;
        const begun = told.events.filter((it) => it.name === 'begin')[1].frame;
        const between = told.between(flushed, begun);
        const fade = between.findLastIndex((value) => value !== 0) + 1;
        const steps = between.slice(1).map((value, at) => Math.abs(value - between[at]));
        const names = told.events.filter((it) => it.id === 'old').map((it) => it.name);
        const kept = told.between(begun, begun + 600);
        return { flushed, fade, step: Math.max(0, ...steps), names, kept };
        """
    )
    assert told["flushed"] is not None
    # It fades, so that it does not click, for 5 ms; the quantum that was told of is out already.
    assert 0 < told["fade"] < 2 * 128
    assert told["step"] < 0.1
    assert told["names"] == ["begin"]
    assert told["kept"] == [7 / 32768] * 600


def test_more_than_the_ring_holds_is_played_in_order(page: Page) -> None:
    page.page.click("h1")
    left, waited = page.run(
        """
        const { Player } = await tools.at('utterwire-player.js');
        const player = await Player.open();
        await player.resume();
        const utterance = player.begin({ id: 'long' });
        let waited = false;
        const room = utterance.write(new Uint8Array(2 * 24000 * 30)).then(() => { waited = true; });
        await Promise.resolve();
        const left = player.bufferedSeconds;
        player.flush();
        await room;
        const rest = player.bufferedSeconds;
        await player.close();
        return [[left, rest], waited];
        """
    )
    assert left[0] > 25
    assert left[1] == 0
    assert waited


def test_a_prebuffer_beyond_the_ring_holds_nothing_up(page: Page) -> None:
    page.page.click("h1")
    page.run(
        """
        const { Player, Prebuffer } = await tools.at('utterwire-player.js');
        const player = await Player.open({ prebuffer: new Prebuffer({ initial: 60, most: 60 }) });
        await player.resume();
        const begun = new Promise((resolve) => player.addEventListener('begin', resolve));
        player.begin({ id: 'long' }).write(new Uint8Array(2 * 24000 * 30));
        await begun;
        await player.close();
        """
    )


# --- the page -------------------------------------------------------------------------------------

TEXT = "Good day. Is it you? It is!"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["websocket", "sse", "http"])
def test_a_text_is_heard_and_measured(page: Page, transport: str) -> None:
    page.speak(TEXT, transport=transport)
    page.finished()
    found = page.export()
    assert list(validator("latency").iter_errors(found)) == []
    assert [row["text"] for row in found["sentences"]] == ["Good day.", "Is it you?", "It is!"]
    assert found["options"]["transport"] == transport
    assert found["audio"] == {"format": "pcm_s16le", "sample_rate": 24_000}
    for row in found["sentences"]:
        assert row["audio_bytes"] == round(row["audio_s"] * 48_000) > 0
        assert row["sent_s"] <= row["first_byte_s"] <= row["rendered_s"] <= row["heard_s"]
        assert row["heard_s"] < row["heard_to_s"]
    said = page.page.locator("#spoken .word.said").count()
    assert said == (7 if transport == "websocket" else 0)
    assert page.page.locator("#spoken .sentence.heard").count() == 3
    assert page.page.inner_text("#notice") == ""
    assert page.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("format", ["wav", "mulaw", "opus"])
def test_formats_are_heard(page: Page, format: str) -> None:
    if page.page.locator(f"#format option[value={format}]").count() == 0:
        pytest.skip(f"the server cannot make {format} here")
    page.speak("Good day.", format=format)
    page.finished()
    (row,) = page.export()["sentences"]
    plain = 0.28 + 0.04  # Seven letters and a gap, as the tone engine speaks.
    assert row["audio_s"] == pytest.approx(plain, abs=0.06)
    assert row["heard_to_s"] is not None


@pytest.mark.slow
def test_an_agent_is_simulated_and_interrupted_by_keyboard(page: Page) -> None:
    page.page.check("#agent")
    page.page.fill("#rate", "60")
    page.speak("One two three. " * 20)
    page.page.wait_for_selector("#spoken .sentence.playing")
    page.page.keyboard.press("Escape")
    page.finished()
    assert page.page.inner_text("#notice") == "Interrupted."
    assert page.page.inner_text("#silent").endswith("ms")
    assert page.page.locator("#spoken .sentence.lost").count() >= 1
    found = page.export()
    assert list(validator("latency").iter_errors(found)) == []
    assert found["options"]["pieces_per_s"] == 60
    # It speaks again, and nothing of the old is among it.
    page.page.uncheck("#agent")
    page.speak("Hello.")
    page.finished()
    assert [row["text"] for row in page.export()["sentences"]] == ["Hello."]
    assert page.complaints == []


@pytest.mark.slow
def test_who_speaks_anew_loses_only_what_was_before(page: Page) -> None:
    page.speak("One two three. " * 20)
    page.page.wait_for_selector("#spoken .sentence.playing")
    page.speak("Here it is. All of it.")
    page.finished()
    assert page.page.locator("#spoken .sentence.lost").count() == 0
    found = page.export()
    assert [row["text"] for row in found["sentences"]] == ["Here it is.", "All of it."]
    assert "interrupted" not in page.page.inner_text("#waterfall")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_what_is_spoken_can_be_interrupted_when_another_endpoint_is_chosen(
    page: Page, transport: str
) -> None:
    page.speak("One two three. " * 40, transport=transport)
    page.page.wait_for_selector("#spoken .sentence.playing")
    page.page.select_option("#endpoint", "1")
    page.page.keyboard.press("Escape")
    page.finished()
    assert page.page.locator("#spoken .sentence.lost").count() >= 1
    assert page.page.locator("#spoken .sentence.playing").count() == 0


@pytest.mark.slow
def test_the_page_stays_where_its_reader_is(page: Page) -> None:
    page.page.set_viewport_size({"width": 360, "height": 500})
    page.speak("One two three. " * 10)
    page.page.wait_for_selector("#spoken .sentence.playing")
    page.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    there = page.page.evaluate("scrollY")
    page.finished()
    # What is above may have grown since.
    assert page.page.evaluate("scrollY") >= there


def test_an_endpoint_that_lies_about_itself_harms_nothing(page: Page) -> None:
    lies: list[dict[str, Any]] = [
        {"limits": {"max_text_chars": 0, "min_speed": "x"}, "voices": ["<b>x</b>"], "formats": [1]},
        {"voices": 5},
        {
            "voices": ["<img src=x>", 3, "v" * 10_000],
            "formats": ["pcm_s16le", None],
            "limits": {"max_text_chars": 0, "min_speed": "slow", "max_speed": None},
            "profiles": {},
            "sample_rates": "all",
        },
    ]
    said = iter([{"type": "session", **lie} for lie in lies] + [lies[-1]])

    def meet(socket: Any) -> None:
        def answer(text: str) -> None:
            if "hello" in text:
                socket.send(json.dumps(next(said)))
            elif "close" in text:
                socket.close()

        socket.on_message(answer)

    page.page.route_web_socket("**/ui/relay/1/**", meet)
    for _ in lies[:-1]:
        page.page.select_option("#endpoint", "1")
        page.page.locator("#notice", has_text="tells nothing of itself").wait_for()
        page.page.select_option("#endpoint", "")
        page.page.evaluate("document.getElementById('notice').textContent = ''")
    page.page.select_option("#endpoint", "1")
    page.page.wait_for_selector("#voice option:nth-child(2)", state="attached")
    assert page.page.locator("#voice option").first.inner_text() == "<img src=x>"
    assert page.page.locator("#format option").all_inner_texts() == ["pcm_s16le"]
    page.speak("Hello there.")
    page.page.wait_for_selector("#spoken .sentence")
    assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.complaints == []


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_not_asked_again_and_again(page: Page) -> None:
    told: list[str] = []
    page.page.route("**/ui/state", lambda _: None)
    for event in ("request", "requestfailed"):
        page.page.on(event, lambda _, event=event: told.append(event))
    # The page gives up after a while, and only then asks anew.
    page.page.locator("#server-text", has_text="does not answer any more").wait_for()
    state = page.page.locator("#state dd").all_inner_texts()
    assert state[:-1] == ["no answer", *["\u2013"] * 5]
    assert "core" in state[-1]
    assert page.page.locator("#speak").is_disabled()
    while told.count("request") < 2:
        page.page.wait_for_timeout(200)
    assert told[:3] == ["request", "requestfailed", "request"]


def test_a_player_that_cannot_be_loaded_is_told_and_tried_again(page: Page) -> None:
    # What loads a worklet passes no route.
    page.run("self.load = AudioWorklet.prototype.addModule;")
    page.run("AudioWorklet.prototype.addModule = () => Promise.reject(new Error('Aborted'));")
    page.speak("Hello there.")
    told = page.page.locator("#notice", has_text="The player is not whole")
    told.filter(has_text="/ui/player-worklet.js cannot be loaded.").wait_for()
    page.run("AudioWorklet.prototype.addModule = self.load;")
    page.speak("Hello there.")
    page.page.wait_for_selector("#spoken .heard")


def test_why_a_page_is_not_let_in_is_told(page: Page) -> None:
    refusal = {"error": "pages of this origin are not let in"}
    page.page.route("**/ui/state", lambda route: route.fulfill(status=403, json=refusal))
    page.page.locator("#server-text", has_text="--allowed-origins http").wait_for()
    page.page.unroute("**/ui/state")
    page.page.locator("#server-text", has_text="ready").wait_for()


@pytest.mark.slow
def test_what_the_server_offers_may_change(page: Page) -> None:
    def answer(route: Any) -> None:
        state = route.fetch().json()
        route.fulfill(json={**state, "voices": ["only"]})

    page.page.route("**/ui/state", answer)
    page.page.wait_for_selector("#voice option:only-child", state="attached")
    assert page.page.input_value("#voice") == "only"
    page.page.unroute("**/ui/state")


@pytest.mark.slow
def test_another_endpoint_is_heard_through_the_relay(chromium: Any) -> None:
    with (
        serving("--profiles", "core,negotiate,interrupt,sse") as far,
        serving("--allow-endpoint", far) as near,
    ):
        context = chromium.new_context()
        opened = Page(context.new_page(), near + "/")
        opened.page.select_option("#endpoint", "1")
        # It tells of itself what it offers.
        opened.page.wait_for_selector("#format option:only-child", state="attached")
        opened.page.select_option("#voice", "bass")
        for transport in ("websocket", "sse"):
            opened.speak("Good day.", transport=transport)
            opened.finished()
            found = opened.export()
            assert found["endpoint"] == {"name": far.removeprefix("http://"), "url": far}
            assert found["options"]["voice"] == "bass"
            assert found["sentences"][0]["audio_s"] == pytest.approx(0.32, abs=0.06)
        assert all(url.startswith((near, "blob:", "data:")) for url in opened.asked)
        assert opened.complaints == []
        context.close()


def test_an_endpoint_that_is_not_there_is_told(page: Page) -> None:
    page.page.select_option("#endpoint", "1")
    for transport, words in (
        ("websocket", "The endpoint cannot be reached (nothing listens there)."),
        ("sse", "The endpoint cannot be reached"),
    ):
        page.speak("Hello.", transport=transport)
        notice = page.page.locator("#notice.error", has_text=words)
        notice.wait_for()
        page.page.evaluate("document.getElementById('notice').textContent = ''")
    page.finished()


@pytest.mark.slow
def test_an_endpoint_that_breaks_off_is_told_with_what_is_kept(chromium: Any) -> None:
    with serving("--engine", "faulty", "--fail-after", "20") as url:
        context = chromium.new_context()
        opened = Page(context.new_page(), url + "/")
        opened.speak("This sentence is never spoken to its end, however long it is.")
        opened.page.wait_for_selector("#notice.error")
        assert "0.8 s of audio kept" in opened.page.inner_text("#notice")
        opened.finished()
        context.close()


def test_a_text_of_nothing_is_told(page: Page) -> None:
    for text, words in (("   ", "There is nothing to speak"), ("?!", "In this text there is")):
        page.speak(text)
        page.page.locator("#notice.error", has_text=words).wait_for()
    page.finished()


@pytest.mark.slow
def test_a_token_is_asked_for(chromium: Any) -> None:
    with serving(token="s3cret") as url:
        context = chromium.new_context()
        tab = context.new_page()
        tab.set_default_timeout(WAIT_MS)
        tab.goto(url + "/")
        tab.fill("#token", "wrong")
        tab.press("#token", "Tab")
        tab.locator("#notice.error", has_text="does not know this token").wait_for()
        tab.fill("#token", "s3cret")
        tab.press("#token", "Tab")
        tab.wait_for_selector("#voice option:nth-child(2)", state="attached")
        # A browser can give a WebSocket no header.
        assert tab.locator("#transport option").count() == 2
        tab.fill("#text", "Hello.")
        tab.click("#speak")
        tab.wait_for_selector("#spoken .sentence.heard")
        context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_everybody_can_use_it(chromium: Any, server: str, width: int, scheme: str) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
    )
    opened = Page(context.new_page(), server + "/")
    opened.speak("Good day. Is it you?")
    opened.finished()
    assert opened.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 24, 26)") == (scheme == "dark")
    axe = os.environ.get("UTTERWIRE_AXE")
    if axe:
        opened.page.add_script_tag(path=axe)
        found = opened.page.evaluate("axe.run()")
        assert [(it["id"], it["nodes"][0]["html"]) for it in found["violations"]] == []
    context.close()
    if not axe:
        pytest.skip("needs axe.min.js of npm's axe-core, whose path UTTERWIRE_AXE tells")


@pytest.mark.slow
def test_what_there_is_to_copy_works_as_it_is(page: Page, tmp_path: Path) -> None:
    text = 'It\'s "quoted" \u2014 h\u00e9, a\\b.'
    with serving(token="TOKEN") as url:
        found = page.run(
            """
            const { snippets } = await tools.at('snippets.js');
            const { http, text } = given;
            const websocket = http.replace(/^http/, 'ws');
            return snippets({ http, websocket, text, voice: 'bass', isSecret: true });
            """,
            {"http": url, "text": text},
        )
        code = {it["name"]: it["code"] for it in found}
        compile(code["AWS SDK"], "aws.py", "exec")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

        def run(*command: str) -> str:
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert run(sys.executable, "-c", code["Python client"]).count("bytes of PCM") > 5
        shell = code["Shell"].replace("utterwire say", f"{sys.executable} -m utterwire_client say")
        if shutil.which("curl") is None:
            shell = shell.partition("\n")[0]
        run("sh", "-ec", shell)
        assert {file.stat().st_size > 10_000 for file in tmp_path.iterdir()} == {True}
