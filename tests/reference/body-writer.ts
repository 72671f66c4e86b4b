/** Request bodies of every shape, with what engines take and with what they do not, spelt in every way that JSON allows. */
import type { Shape } from "./request-view.js";
import type { Random } from "./random.js";

export const SHAPES: readonly Shape[] = ["other", "chat", "completions", "messages", "responses", "generate", "embeddings", "sglang-generate", "chat-render", "completions-render"];

/** Every name that means something in some place, and names that are nearly one. */
export const NAMES =
  "model stream stream_options max_tokens max_completion_tokens min_tokens max_output_tokens n best_of prompt_logprobs echo logprobs prompt_embeds previous_response_id conversation background store cache_hit_threshold cache_salt kv_transfer_params ec_transfer_params bootstrap_ bootstrap_room bootstrap vllm_xargs sampling_params extra_args mm_processor_kwargs messages prompt input token_ids tools system instructions request_id continue_final_message add_generation_prompt lora_path chat_template chat_template_kwargs documents role content tool_calls type text image_url audio_url video_url input_audio url data format uuid tool_call_id function_call reasoning_content reasoning arguments output call_id name source media_type input_image image thinking cache_control input_ids features mm_hashes kv_transfer_param kv_transfer_paramss x".split(
    " ",
  );

const SCALARS = ["null", "true", "false", "0", "1", "2", "3.0", "-0", "1e400", "3e0", "0.5", "1E-2", "9007199254740993", "4294967295", "4294967296", '""', '"3"', '" 2 "', '"1_0"', '"x"', '"0"', '"-"', '"\\ud800"', '"\\ud83d\\ude00"', "[]", "{}"];

/** Beginnings of pictures, as base64. */
const PICTURES = [
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4",
  "iVBORw0KGgoAAAANSUhEUgAAAoAAAAFoCAYAAAB65WHVAAAA",
  "iVBORw0KGgoAAAANSUhEUgAAB4AAAAQ4CAIAAAA=",
  "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7",
  "R0lGODlhQAHwAPAAAAAAAP///yH5",
  "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsLEBYQERMUFRUVDA8XGBYUGBIUFRT/wAARCAHgAoADASIAAhEBAxEB",
  "/9j/wAALCAAQABABAREA/8QAHwAA",
  "UklGRiQAAABXQVZFZm10IBAAAAABAAEA",
];

export class BodyWriter {
  constructor(private readonly random: Random) {}

  private space(): string {
    return this.random.oneIn(3) ? this.random.pick([" ", "\n  ", "\t", "\r\n", "  \n\t  "]) : "";
  }

  /** A string token; some letters are written as escapes. */
  text(value: string): string {
    const { random } = this;
    const often = random.pick([0, 0, 12, 3]);
    let out = '"';
    for (const letter of value) {
      const code = letter.codePointAt(0) ?? 0;
      if (letter === '"' || letter === "\\") out += `\\${letter}`;
      else if (letter === "/" && random.oneIn(4)) out += "\\/";
      else if (code < 0x20 || (code < 0x1_0000 && often > 0 && random.oneIn(often))) {
        const digits = code.toString(16).padStart(4, "0");
        const short = "\b\f\n\r\t".indexOf(letter);
        out += short >= 0 && random.oneIn(2) ? `\\${"bfnrt".charAt(short)}` : `\\u${random.oneIn(2) ? digits : digits.toUpperCase()}`;
      } else out += letter;
    }
    return `${out}"`;
  }

  private words(): string {
    const { random } = this;
    // Long ones reach over the scanner's runs, and characters of several bytes over its vectors.
    const pieces = random.oneIn(25) ? 100 + random.below(300) : random.below(9);
    let out = "";
    for (let piece = 0; piece < pieces; piece++) out += random.pick(["the ", "ledger was ", "a", "bc", "token ", "é", "ß ", "\u4f60\u597d", "\u{1F600}", "\n", '"quoted" ', "\\", "\u0000", "\u007f", "0123456789abcdef", "data:image/png;base64,", ""]);
    return out;
  }

  scalar(): string {
    const { random } = this;
    return random.oneIn(4) ? this.text(this.words()) : random.pick(SCALARS);
  }

  value(depth = 0): string {
    const { random } = this;
    if (random.below(8) < (depth > 3 ? 7 : 5)) return this.scalar();
    if (random.oneIn(2)) return this.array(random.list(3, () => this.value(depth + 1)));
    return this.object(random.list(3, (): [string, string] => [random.pick(NAMES), this.value(depth + 1)]));
  }

  private array(items: readonly string[]): string {
    return `[${this.space()}${items.join(`${this.space()},${this.space()}`)}${this.space()}]`;
  }

  private object(members: readonly (readonly [string, string])[]): string {
    const texts = this.random.shuffled(members).map(([name, value]) => `${this.text(name)}${this.space()}:${this.space()}${value}`);
    return `{${this.space()}${texts.join(`${this.space()},${this.space()}`)}${this.space()}}`;
  }

  /** `members` at odds: each with its chance, one in so many. */
  private maybe(...members: readonly (readonly [number, string, () => string])[]): [string, string][] {
    return members.filter(([odds]) => this.random.oneIn(odds)).map(([, name, make]): [string, string] => [name, make()]);
  }

  private picture(): string {
    return this.random.pick(PICTURES);
  }

  private url(): string {
    const { random } = this;
    return this.text(random.pick([() => "http://x/a", () => "http://x/b", () => `data:image/png;base64,${this.picture()}`, () => `data:image/jpeg;name=${"n".repeat(random.below(150))};base64,${this.picture()}`, () => `data:,${this.picture()}`, () => "", () => this.words()])());
  }

  private medium(): string {
    const { random } = this;
    switch (random.below(9)) {
      case 0:
        return this.url();
      case 1:
        return random.pick(["null", '{"url":1}', "[]", '"u"', "{}"]);
      case 2:
      case 3:
        return this.object([["data", this.text(this.picture())], ...this.maybe([2, "format", () => '"wav"'], [2, "media_type", () => '"image/png"'], [2, "type", () => '"base64"'], [9, "url", () => this.url()])]);
      case 4:
        return this.object([["url", this.url()], ["url", this.url()]]);
      default:
        return this.object([["url", this.url()], ...this.maybe([3, "detail", () => '"low"'], [12, "data", () => this.text(this.picture())])]);
    }
  }

  part(nested = false): string {
    const { random } = this;
    const type = random.pick(["text", "text", "image_url", "image_url", "audio_url", "video_url", "input_audio", "input_image", "image", "tool_result", "tool_use", "thinking", "image_embeds"]);
    const members: [string, string][] = [["type", this.text(type)]];
    if (type === "text" || type === "thinking") members.push([type, this.text(this.words())]);
    else if (type === "tool_result") members.push(["content", this.content(true)], ["tool_use_id", '"t1"']);
    else if (type === "tool_use") members.push(["input", this.value(2)], ["name", '"f"']);
    else members.push([type === "input_image" ? "image_url" : type === "image" ? "source" : type, this.medium()]);
    members.push(
      ...this.maybe(
        [5, "uuid", () => random.pick(['"u"', '"v"', "1", "null"])],
        [12, "type", () => this.text(random.pick(["text", "image_url"]))],
        [6, "cache_control", () => random.pick(['{"type":"ephemeral"}', "null", "[1,{}]"])],
        [14, "text", () => random.pick(['"t"', "null", "[]", '"x-anthropic-billing-header: a=1"'])],
        [16, "content", () => (nested ? this.value(2) : this.content(true))],
        [20, "image_url", () => this.medium()],
        [12, random.pick(NAMES), () => this.value(2)],
      ),
    );
    return this.object(members);
  }

  private content(nested = false): string {
    const { random } = this;
    if (random.oneIn(3)) return this.text(this.words());
    if (random.oneIn(10)) return this.value(1);
    return this.array(random.list(4, () => (random.oneIn(8) ? this.value(2) : this.part(nested))));
  }

  message(): string {
    const { random } = this;
    if (random.oneIn(20)) return this.value(1);
    const members: [string, string][] = [["role", random.pick(['"user"', '"user"', '"assistant"', '"system"', "null"])]];
    if (!random.oneIn(8)) members.push(["content", this.content()]);
    members.push(
      ...this.maybe(
        [6, "tool_calls", () => this.value(1)],
        [12, "function_call", () => this.value(1)],
        [12, "reasoning_content", () => this.value(2)],
        [12, "reasoning", () => this.value(2)],
        [12, "arguments", () => this.value(2)],
        [12, "output", () => this.value(2)],
        [12, "name", () => this.value(2)],
        [12, "tool_call_id", () => this.value(2)],
        [12, "call_id", () => this.value(2)],
        [16, "content", () => this.content()],
        [16, "role", () => this.value(2)],
        [12, random.pick(NAMES), () => this.value(1)],
      ),
    );
    return this.object(members);
  }

  private messages(): string {
    const { random } = this;
    if (random.oneIn(12)) return this.value(1);
    return this.array(random.list(4, () => this.message()));
  }

  private ids(): string {
    const { random } = this;
    return this.array(random.list(random.oneIn(6) ? 90 : 9, () => (random.oneIn(60) ? this.scalar() : String(random.oneIn(8) ? random.next() : random.below(200_000)))));
  }

  private prompt(): string {
    const { random } = this;
    switch (random.below(7)) {
      case 0:
      case 1:
        return this.text(this.words());
      case 2:
        return this.array(random.list(random.oneIn(10) ? 70 : 3, () => this.text(this.words())));
      case 3:
        return this.ids();
      case 4:
        return this.array(random.list(3, () => this.ids()));
      case 5:
        return this.array(random.list(3, () => this.value(1)));
      default:
        return this.value(1);
    }
  }

  private features(): string {
    const { random } = this;
    return this.object([["mm_hashes", this.object(random.list(2, (): [string, string] => [random.pick(["image", "audio"]), this.array(random.list(3, () => this.scalar()))]))], ...this.maybe([3, "kwargs", () => this.value(2)])]);
  }

  /** Deeply nested, more than some readers take. */
  private deep(levels: number): string {
    const open = this.random.oneIn(2) ? "[" : '{"a":';
    return `${open.repeat(levels)}${open === "[" ? "" : "1"}${(open === "[" ? "]" : "}").repeat(levels)}`;
  }

  private sampling(): string {
    const { random } = this;
    if (random.oneIn(6)) return this.value(2);
    return this.object([
      ...random.list(4, (): [string, string] => [random.pick(["max_tokens", "min_tokens", "n", "best_of", "prompt_logprobs", "logprobs", "temperature"]), this.scalar()]),
      ...this.maybe([2, "extra_args", () => (random.oneIn(4) ? this.value(3) : this.object(random.list(3, (): [string, string] => [random.pick(["kv_transfer_params", "ec_transfer_params", "x"]), this.value(3)])))]),
    ]);
  }

  /** What holds the prompt in this shape, some of it twice. */
  private prompts(shape: Shape): [string, string][] {
    const messages = (): string => this.messages();
    const prompt = (): string => this.prompt();
    switch (shape) {
      case "chat":
      case "chat-render":
        return [["messages", messages()], ...this.maybe([12, "messages", messages])];
      case "messages":
        return [["messages", messages()], ...this.maybe([2, "system", () => this.content()], [12, "system", () => this.content()], [16, "messages", messages])];
      case "responses":
        return [["input", this.random.oneIn(4) ? this.text(this.words()) : messages()], ...this.maybe([3, "instructions", () => this.content()], [16, "input", messages])];
      case "completions":
      case "completions-render":
        return [["prompt", prompt()], ...this.maybe([8, "prompt", prompt])];
      case "embeddings":
        return this.maybe([2, "input", prompt], [4, "messages", messages]);
      case "sglang-generate":
        return this.maybe([2, "text", prompt], [3, "input_ids", prompt]);
      case "generate":
        return [["token_ids", this.ids()], ...this.maybe([3, "features", () => this.features()], [16, "features", () => this.value(1)], [16, "token_ids", () => this.ids()])];
      case "other":
        return this.maybe([3, "messages", messages], [3, "prompt", prompt]);
    }
  }

  body(shape: Shape): string {
    const { random } = this;
    if (random.oneIn(40)) return this.value();
    const members: [string, string][] = [
      ...this.prompts(shape),
      ...this.maybe(
        [2, "model", () => (random.oneIn(5) ? this.value(2) : this.text(random.pick(["m", "base-vl", "", "adapter/7", "m".repeat(300)])))],
        [4, "stream", () => random.pick(["true", "false", "null", "1", '"true"'])],
        [5, "tools", () => (random.oneIn(3) ? this.value(1) : this.array(random.list(2, () => this.object([["type", '"function"'], ["function", this.value(1)], ...this.maybe([4, "cache_control", () => "{}"])]))))],
        [6, random.pick(["documents", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "cache_salt", "lora_path", "truncate_prompt_tokens", "truncation_side"]), () => this.value(1)],
        [6, random.pick(["n", "best_of"]), () => this.scalar()],
        [8, random.pick(["prompt_logprobs", "echo", "logprobs", "background"]), () => this.scalar()],
        [14, "echo", () => "true"],
        [16, random.pick(["prompt_embeds", "previous_response_id", "conversation"]), () => (random.oneIn(2) ? this.text(random.pick(["resp_1", "resp_2"])) : this.value(2))],
        [6, random.pick(["kv_transfer_params", "ec_transfer_params", "bootstrap_room", "bootstrap_"]), () => this.value(2)],
        [6, "vllm_xargs", () => (random.oneIn(5) ? this.value(2) : this.object(random.list(3, (): [string, string] => [random.pick(["kv_transfer_params", "ec_transfer_params", "n"]), this.value(3)])))],
        [5, "sampling_params", () => this.sampling()],
        [10, "sampling_params", () => this.sampling()],
        [300, "x", () => this.deep(random.pick([60, 66, 1000, 8190, 8192]))],
        [150, "tools", () => this.deep(10 + random.below(40))],
      ),
      ...random.list(2, (): [string, string] => [random.pick(NAMES), this.value(1)]),
    ];
    return `${random.oneIn(30) ? "\ufeff" : ""}${this.space()}${this.object(members)}${this.space()}`;
  }
}
