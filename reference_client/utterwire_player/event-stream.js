// Reads a body of server-sent events as the HTML standard does, whatever it is cut into.

/** Feed it the body's bytes; it gives back the events that are whole. */
export class EventStream {
  // A byte order mark at the beginning is dropped by the decoder.
  #decoder = new TextDecoder("utf-8");
  #rest = "";
  #afterReturn = false;
  #name = "";
  #data = [];

  /** @returns {{event: string, data: string}[]} */
  push(bytes) {
    let text = this.#decoder.decode(bytes, { stream: true });
    // CR LF is one end of line, also where it is cut in two.
    if (this.#afterReturn && text.startsWith("\n")) text = text.slice(1);
    if (text.length > 0) this.#afterReturn = text.endsWith("\r");
    const lines = (this.#rest + text).split(/\r\n|\r|\n/);
    this.#rest = lines.pop();
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
      return event;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
    return null;
  }
}
