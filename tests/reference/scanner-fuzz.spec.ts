import { describe, expect, it } from "vitest";
import { createScanner } from "../../sidecar/body/scanner.js";
import type { ApiShape, BodyView } from "../../sidecar/body/types.js";
import { readBody } from "./plain-scanner.js";

const SHAPES: readonly ApiShape[] = ["chat", "completions", "messages", "responses", "generate", "other"];

/** A small seeded generator: a failure names the seed that brings it back. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 0x1_0000_0000;
  };
}

class Writer {
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  pick<T>(list: readonly T[]): T {
    const found = list[this.below(list.length)];
    if (found === undefined) throw new Error("empty list");
    return found;
  }

  space(): string {
    return this.pick(["", "", "", " ", "\n ", "\t", "\r\n"]);
  }

  /** A string token; its letters are sometimes written as escapes. */
  text(value: string): string {
    let out = '"';
    for (const letter of value) {
      const code = letter.codePointAt(0) ?? 0;
      if (letter === '"' || letter === "\\") out += `\\${letter}`;
      else if (code < 0x20 || (code < 0x1_0000 && this.below(12) === 0)) {
        const digits = code.toString(16).padStart(4, "0");
        out += `\\u${this.below(2) === 0 ? digits : digits.toUpperCase()}`;
      } else out += letter;
    }
    return `${out}"`;
  }

  scalar(): string {
    return this.pick(["null", "true", "false", "0", "1", "2", "3.0", "-0", "1e400", "3e0", "9007199254740993", '""', '"3"', '"x"', this.text("é\u{1F600}\n\"\\"), '"\\ud800"', "[]", "{}"]);
  }

  value(depth: number): string {
    const kind = this.below(depth > 3 ? 4 : 7);
    if (kind < 4) return this.scalar();
    const items = Array.from({ length: this.below(4) }, () => (kind === 4 ? this.value(depth + 1) : `${this.text(this.pick(["a", "n", "url", "type", "kv_transfer_params", "content"]))}${this.space()}:${this.space()}${this.value(depth + 1)}`));
    return kind === 4 ? `[${this.space()}${items.join(`${this.space()},`)}${this.space()}]` : `{${this.space()}${items.join(`,${this.space()}`)}${this.space()}}`;
  }

  object(members: readonly (readonly [string, string])[]): string {
    const shuffled = [...members].sort(() => this.#random() - 0.5);
    return `{${this.space()}${shuffled.map(([name, value]) => `${this.text(name)}${this.space()}:${this.space()}${value}`).join(`${this.space()},${this.space()}`)}${this.space()}}`;
  }

  part(): string {
    const type = this.pick(["image_url", "audio_url", "video_url", "input_audio", "input_image", "text", "image_embeds"]);
    const url = this.text(this.pick(["http://x/a", "http://x/b", "data:image/png;base64,AAAA", ""]));
    const holder = this.pick([`{"url":${url}}`, `{${this.space()}"detail":"low","url":${url}}`, `{"url":${url},"detail":"low"}`, url, "null", '{"data":"d"}', '{"url":1}', "[]"]);
    const members: [string, string][] = [["type", this.text(type)], [type === "input_image" ? "image_url" : type, holder]];
    if (this.below(4) === 0) members.push(["uuid", this.pick(['"u"', "1"])]);
    if (this.below(8) === 0) members.push(["type", this.text(this.pick(["text", "image_url"]))]);
    return this.object(members);
  }

  turns(): string {
    return `[${Array.from({ length: this.below(4) }, () => this.object([["role", '"user"'], ["content", this.pick([`[${Array.from({ length: this.below(4) }, () => this.part()).join(",")}]`, '"text"', "null", "[1]", "{}"])]])).join(",")}]`;
  }

  body(): string {
    const members: [string, string][] = [];
    const names = ["model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens", "max_output_tokens", "n", "best_of", "prompt_logprobs", "echo", "logprobs", "prompt_embeds", "previous_response_id", "conversation", "background", "store", "cache_hit_threshold", "cache_salt", "kv_transfer_params", "ec_transfer_params", "bootstrap_room", "bootstrap_", "bootstrap", "mm_processor_kwargs", "token_ids", "tools", "system", "instructions", "request_id", "continue_final_message", "add_generation_prompt", "extra_args", "kv_transfer_param", "kv_transfer_paramss", ""];
    for (let count = this.below(7); count > 0; count--) members.push([this.pick(names), this.value(1)]);
    // Lists that no engine takes (objects, mixed kinds) may be told apart differently and are left out.
    for (let count = this.below(3); count > 0; count--) members.push(["prompt", this.pick(['"a"', '["a"]', '["a","b"]', "[[1],[2]]", "[[1]]", "[1,2]", "[]", this.scalar()])]);
    if (this.below(3) > 0) members.push([this.pick(["messages", "input"]), this.below(6) === 0 ? this.value(1) : this.turns()]);
    for (const name of ["vllm_xargs", "sampling_params"]) {
      if (this.below(3) > 0) continue;
      const inner: [string, string][] = Array.from({ length: this.below(4) }, (): [string, string] => [this.pick(names), this.value(2)]);
      if (this.below(2) === 0) inner.push(["extra_args", this.pick([this.object([[this.pick(names), this.value(3)], ["kv_transfer_params", "{}"]]), "null"])]);
      members.push([name, this.below(6) === 0 ? this.value(2) : this.object(inner)]);
    }
    return `${this.space()}${this.object(members)}${this.space()}`;
  }
}

/** Everything of a view but the keys' values, which only say what is equal; those become the index of the first equal item. */
function comparable(view: BodyView): unknown {
  // A body that cannot be read is not handed on: only that, and roughly why, matters. Bytes outside strings that are no ASCII are wrong in two ways, and
  // the scanner checks UTF-8 in runs.
  if (view.error === "invalid_utf8" || view.error === "invalid_json") return "invalid";
  if (view.error !== null) return { error: view.error, errorOffset: view.errorOffset };
  const keys = view.media.map(({ key }) => key);
  return { ...view, errorOffset: 0, media: view.media.map(({ key, ...item }) => ({ ...item, key: key === 0n ? -1 : keys.indexOf(key) })) };
}

function scan(body: Buffer, shape: ApiShape, cuts: readonly number[]): BodyView {
  const scanner = createScanner(shape);
  let at = 0;
  for (const cut of [...cuts, body.length]) {
    scanner.feed(body.subarray(at, cut));
    at = cut;
  }
  return scanner.end();
}

describe("the scanner against the plain reader", () => {
  it("agrees on generated bodies in every shape, at generated cuts", () => {
    for (let seed = 1; seed <= 3000; seed++) {
      const writer = new Writer(generator(seed));
      const text = writer.body();
      const body = Buffer.from(text);
      const shape = SHAPES[seed % SHAPES.length] ?? "chat";
      const cuts = Array.from({ length: writer.below(4) }, () => writer.below(body.length + 1)).sort((a, b) => a - b);
      expect(comparable(scan(body, shape, cuts)), `seed ${String(seed)} ${shape}: ${text}`).toEqual(comparable(readBody(body, shape)));
    }
  });

  it("agrees on broken bodies: cut, with a byte changed, removed or doubled", () => {
    for (let seed = 1; seed <= 6000; seed++) {
      const writer = new Writer(generator(seed + 100_000));
      const good = Buffer.from(writer.body());
      const at = writer.below(good.length);
      const byte = writer.pick([0x22, 0x5c, 0x7b, 0x7d, 0x5b, 0x5d, 0x2c, 0x3a, 0x00, 0x1f, 0x80, 0xc0, 0xed, 0xf5, 0xff, 0x65, 0x2e, 0x30, 0x2d]);
      const body = writer.pick([good.subarray(0, at), Buffer.concat([good.subarray(0, at), Buffer.from([byte]), good.subarray(at + 1)]), Buffer.concat([good.subarray(0, at), good.subarray(at + 1)]), Buffer.concat([good.subarray(0, at), Buffer.from([byte]), good.subarray(at)])]);
      const shape = SHAPES[seed % SHAPES.length] ?? "chat";
      expect(comparable(scan(body, shape, [Math.floor(body.length / 2)])), `seed ${String(seed)} ${shape}: ${body.toString("latin1")}`).toEqual(comparable(readBody(body, shape)));
    }
  });

  it("agrees on one body at every cut", () => {
    const body = Buffer.from(new Writer(generator(7)).body() + " ");
    for (let cut = 0; cut <= body.length; cut++) expect(comparable(scan(body, "chat", [cut]))).toEqual(comparable(readBody(body, "chat")));
    expect(comparable(scan(body, "chat", Array.from({ length: body.length }, (_, at) => at)))).toEqual(comparable(readBody(body, "chat")));
  });
});
