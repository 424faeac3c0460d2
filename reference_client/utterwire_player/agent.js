// Text as an agent writes it, and sentences out of it as soon as they are whole.

/** Pieces of about a token: up to four letters, with the white space before them. */
export function tokensOf(text) {
  return text.match(/\s*[\p{L}\p{M}\p{N}]{1,4}|\s*[^\s\p{L}\p{M}\p{N}]+|\s+/gu) ?? [];
}

const LONGEST_HELD = 400;

/**
 * Cuts sentences where the browser's own rules (`Intl.Segmenter`) see them. A sentence is given out
 * once the next word is whole. It knows no abbreviations: the chunker of the Python client does.
 */
export class SentenceCutter {
  #held = "";
  #segmenter;

  constructor(language) {
    this.#segmenter = new Intl.Segmenter(language, { granularity: "sentence" });
  }

  /** What is not whole yet. */
  get held() {
    return this.#held;
  }

  /** @returns {string[]} the sentences that the new piece made whole. */
  feed(piece) {
    this.#held += piece;
    return this.#cut(false);
  }

  /** The rest. */
  finish() {
    return this.#cut(true);
  }

  #cut(isLast) {
    const parts = Array.from(this.#segmenter.segment(this.#held), ({ segment }) => segment);
    let whole = parts.length;
    // The last goes on; the one before it may, until the word after it is known.
    if (!isLast) whole = /\S\s/u.test(parts.at(-1) ?? "") ? parts.length - 1 : 0;
    if (!isLast && whole === 0 && this.#held.length > LONGEST_HELD) {
      const space = this.#held.lastIndexOf(" ");
      if (space > 0) return this.#give([this.#held.slice(0, space + 1)]);
    }
    return this.#give(parts.slice(0, Math.max(0, whole)));
  }

  #give(parts) {
    this.#held = this.#held.slice(parts.join("").length);
    return parts.map((part) => part.trim()).filter((part) => /[\p{L}\p{N}]/u.test(part));
  }
}

/** Pieces of at most `most` code points, one at least, cut at white space where there is some. */
export function split(text, most) {
  if (!(most >= 1)) throw new RangeError("a piece has one code point at least");
  const points = Array.from(text);
  const pieces = [];
  while (points.length > most) {
    let at = most;
    while (at > most / 2 && !/\s/u.test(points[at - 1])) at -= 1;
    pieces.push(points.splice(0, at > most / 2 ? at : most).join(""));
  }
  return [...pieces, points.join("")].filter((piece) => piece.trim() !== "");
}

/**
 * Gives `text` out in tokens, `perSecond` of them, by the clock: a late timer makes up for it.
 *
 * @returns {Promise<void>} when all was given, or `signal` was aborted.
 */
export async function typed(text, perSecond, give, signal) {
  const tokens = tokensOf(text);
  const began = performance.now();
  for (const [number, token] of tokens.entries()) {
    const due = began + (number * 1000) / perSecond;
    const wait = due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    if (signal.aborted) return;
    give(token);
  }
}
