// The side of the player that runs in the audio thread: a ring of samples, and exact accounts of
// what was rendered. It allocates nothing while it plays but the few messages it sends.
//
// Told by the player (in this order, for each utterance):
//   {type: "begin", id}, {type: "audio", samples}..., {type: "end", id}
// and at any time {type: "prebuffer", frames}, {type: "flush"} and, last of all, {type: "stop"}.

/** What is left of the last sample after each frame of silence: a step to zero would click. */
const DECAY = 0.9;
const INAUDIBLE = 1e-5;
/** Quanta between two reports of how much is buffered. */
const REPORT_EVERY = 8;
/** Chromium leaves quanta out while a context starts: nothing is played before so many in a row. */
const STEADY_QUANTA = 4;

class UtterwirePlayer extends AudioWorkletProcessor {
  constructor(options) {
    super();
    const { capacity, prebuffer, record } = options.processorOptions;
    this.ring = new Float32Array(capacity); // A power of two.
    this.mask = capacity - 1;
    this.prebuffer = prebuffer;
    this.record = record;
    this.written = 0; // Samples since the beginning of all.
    this.read = 0;
    this.cues = []; // {position, name, id}, in order; at most a few for each utterance.
    this.open = false; // More of the utterance that was written last is to come.
    this.playing = false;
    this.starved = 0; // Frames of silence since the ring ran dry inside of an utterance.
    this.dryFrame = 0;
    this.isStarved = false;
    this.last = 0;
    this.isFading = false; // After a flush.
    this.quanta = 0;
    this.told = [];
    this.nextFrame = 0;
    this.inARow = 0;
    this.isStopped = false;
    this.port.onmessage = (event) => this.take(event.data);
  }

  take(message) {
    switch (message.type) {
      case "audio":
        this.write(message.samples);
        break;
      case "begin":
        this.open = true;
        this.cues.push({ position: this.written, name: "begin", id: message.id });
        break;
      case "end":
        this.open = false;
        this.cues.push({ position: this.written, name: "end", id: message.id });
        if (this.isStarved && this.buffered === 0) this.endDry();
        break;
      case "prebuffer":
        this.prebuffer = message.frames;
        break;
      case "flush":
        // Whoever waited for more in silence has heard it.
        if (this.isStarved) {
          this.tell({ type: "resumed", frame: currentFrame, frames: this.starved });
        }
        this.tell({ type: "flushed", frame: currentFrame, dropped: this.buffered });
        this.post();
        this.read = this.written;
        this.cues.length = 0;
        this.open = this.playing = this.isStarved = false;
        this.starved = 0;
        // What comes next waits for the fade, or it would begin with a click.
        this.isFading = this.last !== 0;
        break;
      case "stop":
        this.isStopped = true;
        break;
    }
  }

  get buffered() {
    return this.written - this.read;
  }

  write(samples) {
    // The player never sends more than there is room for.
    const at = this.written & this.mask;
    const first = Math.min(samples.length, this.ring.length - at);
    this.ring.set(samples.subarray(0, first), at);
    this.ring.set(samples.subarray(first), 0);
    this.written += samples.length;
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    let filled = 0;
    this.watchClock(out.length);
    const isEnough = this.buffered > 0 && (!this.open || this.buffered >= this.prebuffer);
    if (!this.playing && !this.isFading && isEnough && this.inARow >= STEADY_QUANTA) {
      this.playing = true;
      if (this.isStarved) {
        this.isStarved = false;
        this.tell({ type: "resumed", frame: currentFrame, frames: this.starved });
        this.starved = 0;
      }
    }
    if (this.playing) {
      filled = Math.min(out.length, this.buffered);
      const at = this.read & this.mask;
      const first = Math.min(filled, this.ring.length - at);
      out.set(this.ring.subarray(at, at + first), 0);
      out.set(this.ring.subarray(0, filled - first), first);
      this.tellCues(filled);
      this.read += filled;
      if (filled > 0) this.last = out[filled - 1];
    }
    if (filled < out.length) this.fallSilent(out, filled);
    if (this.record) {
      const samples = out.slice();
      this.port.postMessage({ type: "rendered", frame: currentFrame, samples }, [samples.buffer]);
    }
    this.quanta += 1;
    if ((this.playing || this.buffered > 0) && this.quanta % REPORT_EVERY === 0) this.report();
    // Whoever is told of a frame has what was rendered up to it.
    this.post();
    return !this.isStopped;
  }

  post() {
    for (const message of this.told) this.port.postMessage(message);
    this.told.length = 0;
  }

  /** Frames that the context went on by without asking for them: silence that is not ours. */
  watchClock(length) {
    const frames = currentFrame - this.nextFrame;
    if (frames > 0) {
      this.inARow = 0;
      if (this.playing || this.isStarved) {
        this.tell({ type: "skipped", frame: this.nextFrame, frames });
      }
    }
    this.inARow += 1;
    this.nextFrame = currentFrame + length;
  }

  tell(message) {
    message.wall = Date.now();
    this.told.push(message);
  }

  /** Tell which utterances begin or end in the next `filled` samples, and in which frame. */
  tellCues(filled) {
    const until = this.read + filled;
    while (this.cues.length > 0) {
      const { position, name, id } = this.cues[0];
      // An utterance begins with its first sample, and has ended after its last.
      if (name === "begin" ? position >= until : position > until) return;
      this.cues.shift();
      const frame = currentFrame + (position - this.read);
      this.tell({ type: name, id, frame });
    }
  }

  fallSilent(out, filled) {
    if (this.playing) {
      this.playing = false;
      const frame = currentFrame + filled;
      this.dryFrame = frame;
      if (this.open) {
        this.isStarved = true;
        this.tell({ type: "underrun", frame });
      } else {
        this.tell({ type: "drained", frame });
      }
      this.report();
    }
    if (this.isStarved) this.starved += out.length - filled;
    for (let at = filled; at < out.length; at += 1) {
      this.last = Math.abs(this.last) < INAUDIBLE ? 0 : this.last * DECAY;
      out[at] = this.last;
    }
    if (this.last === 0) this.isFading = false;
  }

  /** Nothing more came: the silence was the end of it, only told late. */
  endDry() {
    this.isStarved = false;
    this.starved = 0;
    this.tell({ type: "resumed", frame: this.dryFrame, frames: 0 });
    for (const { name, id } of this.cues.splice(0)) {
      this.tell({ type: name, id, frame: this.dryFrame });
    }
    this.tell({ type: "drained", frame: this.dryFrame });
  }

  report() {
    this.tell({ type: "level", frame: currentFrame, read: this.read });
  }
}

registerProcessor("utterwire-player", UtterwirePlayer);
