// Reads a body of server-sent events as the HTML standard does, whatever it is cut into.

const LONGEST_EVENT = 2 ** 24;

/** Feed it the body's bytes; it gives back the events that are whole. */
export class EventStream {
  // A byte order mark at the beginning is dropped by the decoder.
  #decoder = new TextDecoder("utf-8");
  #rest = "";
  #afterReturn = false;
  #name = "";
  #data = [];
  #held = 0; // Characters in `#data`.

  /**
   * @returns {{event: string, data: string}[]}
   * @throws {RangeError} at an event of over 16 million characters.
   */
  push(bytes) {
    let text = this.#decoder.decode(bytes, { stream: true });
    // CR LF is one end of line, also where it is cut in two.
    if (this.#afterReturn && text.startsWith("\n")) text = text.slice(1);
    if (text.length > 0) this.#afterReturn = text.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    // What is held was searched already.
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop();
    if (this.#rest.length + this.#held > LONGEST_EVENT) {
      throw new RangeError("the endpoint sends an event that is too long");
    }
    return lines.map((line) => this.#take(line)).filter((event) => event !== null);
  }

  /** Whether something is left that no blank line has ended. */
  get isInside() {
    return this.#rest !== "" || this.#name !== "" || this.#data.length > 0;
  }

  #take(line) {
    if (line === "") {
      const event = this.#data.length === 0 ? null : {
        event: this.#name || "message",
        data: this.#data.join("\n"),
      };
      this.#name = "";
      this.#data = [];
      this.#held = 0;
      return event;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    else if (field === "data") {
      this.#held += value.length + 1;
      this.#data.push(value);
    }
    return null;
  }
}
