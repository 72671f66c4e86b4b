/**
 * What the filter's scanner makes of a request body, read the slow and plain way: from a tree, in one pass over its members. Hashes are left out: where the scanner has one,
 * this has a number that stands for a description of what is hashed ({@link Identities}), so that the two are right about each other when equal numbers meet equal hashes
 * and different ones different hashes.
 *
 * It shares no code with what it judges.
 */
import type { ApiShape, BodyView, MediaType, Member, MemberName, MemberParent, NeverSplit } from "../../sidecar/body/types.js";
import { picturePixels } from "./picture.js";
import { decoded, type NamedNode, type Node, ReadError, readTree } from "./tree.js";

export type Shape = ApiShape | "embeddings" | "sglang-generate" | "chat-render" | "completions-render";

/** Settings of the media's token estimate. */
export interface Estimate {
  /** Tokens of every picture; 0: by its size. */
  readonly imageStatic: number;
  /** Pixels per token. */
  readonly imageFactor: number;
  /** Pixels of a picture whose size is not known. */
  readonly imagePixels: number;
  readonly videoTokens: number;
}

export const DEFAULT_ESTIMATE: Estimate = { imageStatic: 0, imageFactor: 1024, imagePixels: 640 * 360, videoTokens: 4500 };

export interface ReadOptions {
  readonly shape: Shape;
  /** Tokens of a block; 0: tokens are counted only. */
  readonly blockTokens: number;
  /** Blocks of one prompt that have keys. */
  readonly maxBlocks: number;
  /** Whether member spans are reported. */
  readonly spans: boolean;
  /** FilterOptions.strict. */
  readonly strict: boolean;
  readonly estimate: Estimate;
  readonly maxDepth: number;
  readonly maxMembers: number;
  /** Breaks one rule, on purpose: the fuzz has to see it. */
  readonly wrong?: WrongRule;
}

/** As the sidecar reads. */
export const SIDECAR_OPTIONS: Omit<ReadOptions, "shape"> = { blockTokens: 0, maxBlocks: 0, spans: true, strict: false, estimate: DEFAULT_ESTIMATE, maxDepth: 8192, maxMembers: 4096 };

/** Rules that a reader could get wrong, each broken in one place of this file. */
export const WRONG_RULES = [
  "error-place",
  "escaped-names",
  "first-messages-win",
  "first-content-wins",
  "first-text-wins",
  "role-is-no-key",
  "model-is-no-key",
  "salt-is-no-key",
  "tools-count-nothing",
  "cache-control-counts",
  "members-in-order",
  "media-by-url-only",
  "media-unaligned",
  "inline-audio-merges",
  "picture-size-unknown",
  "number-text-is-none",
  "echo-alone",
  "bootstrap-is-one-name",
  "sampling-is-kept",
  "front-is-prompt",
  "ids-are-bytes",
  "tail-has-no-key",
  "strict-by-spelling",
  "strict-takes-any-message",
] as const;
export type WrongRule = (typeof WRONG_RULES)[number];

/** Numbers for texts: equal texts have equal numbers, from 1 on. */
export class Identities {
  private readonly numbers = new Map<string, number>();

  of(text: string): number {
    let number = this.numbers.get(text);
    if (number === undefined) {
      number = this.numbers.size + 1;
      this.numbers.set(text, number);
    }
    return number;
  }

  /** For messages. */
  textOf(number: number): string {
    for (const [text, known] of this.numbers) if (known === number) return text;
    return "";
  }

  clear(): void {
    this.numbers.clear();
  }
}

export interface MediaPart {
  readonly type: MediaType;
  readonly start: number;
  readonly end: number;
  /** Place holders in the prompt. */
  readonly tokens: number;
  /** Equal for parts that are equal; 0: merged with no other. */
  readonly key: number;
}

/** One prompt's part of the keys (assembly/request/view.ts, KeySpan). */
export interface PromptSpan {
  readonly first: number;
  readonly count: number;
  readonly tokens: number;
  readonly lead: number;
  readonly frontBlocks: number;
  readonly frontTail: number;
  readonly partial: boolean;
}

export interface PlainView extends Omit<BodyView, "media"> {
  readonly media: readonly MediaPart[];
  readonly duplicates: boolean;
  /** At most {@link KEPT} bytes of it. */
  readonly model: string;
  /** Of the id that this goes on with; 0: none. */
  readonly keptFor: number;
  /** What a strict body must have; false where it was not asked for. */
  readonly hasPrompt: boolean;
  readonly hasTokens: boolean;
  readonly tokens: number;
  readonly keys: readonly number[];
  readonly spans: readonly PromptSpan[];
  readonly mmItems: number;
  readonly mmDistinct: number;
  /** Of the distinct ones, the first {@link MOST_ITEMS}. */
  readonly items: readonly { readonly key: number; readonly tokens: number }[];
}

/** Bytes of a scalar that are looked at. */
const KEPT = 256;
const MOST_ITEMS = 48;
const MOST_MEDIA = 8192;
const MOST_PROMPTS = 64;
/** Place holders end here. */
const MOST_BYTES = 2 ** 26;
const STRICT_DEPTH = 64;
const WIDE_BYTES = 64;
/** Levels inside a value in which members may come in any order. */
const FREE_LEVELS = 24;
const BILLING_NOTE = "x-anthropic-billing-header";

const REPORTED: readonly MemberName[] = [
  "model",
  "stream",
  "stream_options",
  "max_tokens",
  "max_completion_tokens",
  "min_tokens",
  "max_output_tokens",
  "n",
  "best_of",
  "prompt_logprobs",
  "echo",
  "logprobs",
  "prompt_embeds",
  "previous_response_id",
  "conversation",
  "background",
  "store",
  "cache_hit_threshold",
  "cache_salt",
  "kv_transfer_params",
  "ec_transfer_params",
  "vllm_xargs",
  "sampling_params",
  "mm_processor_kwargs",
  "messages",
  "prompt",
  "input",
  "token_ids",
  "tools",
  "system",
  "instructions",
  "request_id",
  "continue_final_message",
  "add_generation_prompt",
];
/** Names that are known as well: of parts, messages and media, and of top-level members that are not reported. */
const FURTHER_NAMES =
  "extra_args lora_path chat_template chat_template_kwargs documents role content tool_calls type text image_url audio_url video_url input_audio url data format uuid tool_call_id function_call reasoning_content reasoning arguments output call_id name source media_type input_image image thinking cache_control input_ids features mm_hashes".split(
    " ",
  );
const TOP_NAMES: ReadonlyMap<string, MemberName> = new Map(REPORTED.map((name) => [name, name]));
const KNOWN_NAMES: ReadonlySet<string> = new Set([...REPORTED, ...FURTHER_NAMES]);

/** What is reported of the inner objects: what stages edit or remove there. */
const INNER_NAMES: Readonly<Record<Exclude<MemberParent, "">, ReadonlyMap<string, MemberName>>> = {
  vllm_xargs: named("kv_transfer_params", "ec_transfer_params"),
  sampling_params: named("max_tokens", "min_tokens", "n", "best_of", "prompt_logprobs", "logprobs", "extra_args"),
  "sampling_params.extra_args": named("kv_transfer_params", "ec_transfer_params"),
};

function named(...names: MemberName[]): ReadonlyMap<string, MemberName> {
  return new Map(names.map((name) => [name, name]));
}

/** Top-level members whose whole value takes part in every key, in the order in which they are mixed in. */
const SIDES = ["tools", "documents", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "cache_salt", "lora_path", "features", "truncate_prompt_tokens", "truncation_side"];

/** Members of a message that take part in its salt, and how many of them count with their bytes. */
const MESSAGE_SIDES = ["role", "tool_calls", "function_call", "reasoning_content", "reasoning", "arguments", "output", "name", "tool_call_id", "call_id"];
const COUNTED_SIDES = 7;

const CHAT_MEDIA: readonly MediaType[] = ["image_url", "audio_url", "video_url", "input_audio"];
/** Where a part of a type holds its medium. */
const MEDIA_HOLDERS: Readonly<Record<MediaType, string>> = {
  image_url: "image_url",
  input_image: "image_url",
  audio_url: "audio_url",
  video_url: "video_url",
  input_audio: "input_audio",
  image: "source",
};
const HOLDERS = new Set(Object.values(MEDIA_HOLDERS));

interface ShapeRules {
  /** Members that hold messages, a prompt (text, texts or ids), ids, text in front of all. */
  readonly messages?: readonly string[];
  readonly prompts?: readonly string[];
  readonly ids?: readonly string[];
  readonly front?: readonly string[];
  readonly features?: boolean;
  readonly media?: readonly MediaType[];
}

const RULES: Readonly<Record<Shape, ShapeRules>> = {
  chat: { messages: ["messages"], media: CHAT_MEDIA },
  messages: { messages: ["messages"], front: ["system"], media: [...CHAT_MEDIA, "image"] },
  responses: { messages: ["input"], front: ["instructions"], media: [...CHAT_MEDIA, "input_image"] },
  "chat-render": { messages: ["messages"], media: CHAT_MEDIA },
  completions: { prompts: ["prompt"] },
  "completions-render": { prompts: ["prompt"] },
  embeddings: { prompts: ["input"], messages: ["messages"] },
  generate: { ids: ["token_ids"], features: true },
  "sglang-generate": { prompts: ["text", "input_ids"] },
  other: {},
};

const NOTHING: Omit<PlainView, "error" | "errorOffset"> = {
  isObject: false,
  objectStart: -1,
  objectEnd: -1,
  members: [],
  media: [],
  neverSplit: "",
  stream: false,
  duplicates: false,
  model: "",
  keptFor: 0,
  hasPrompt: false,
  hasTokens: false,
  tokens: 0,
  keys: [],
  spans: [],
  mmItems: 0,
  mmDistinct: 0,
  items: [],
};

/** Reads a body. Never throws for what is in it. */
export function readRequest(body: Buffer, options: ReadOptions, identities: Identities): PlainView {
  try {
    const root = readTree(body, options.strict ? Math.min(STRICT_DEPTH, options.maxDepth) : options.maxDepth);
    return new Reading(body, options, identities).view(root);
  } catch (error) {
    if (!(error instanceof ReadError)) throw error;
    return { ...NOTHING, error: error.error, errorOffset: error.offset + (options.wrong === "error-place" ? 1 : 0) };
  }
}

/** Characters behind the 256 bytes stand for bytes without content of their own: the first and each further one of a run, and then media. */
const ROOM = "\u0100";
const MORE_ROOM = "\u0101";
const FIRST_MEDIUM = 0x200;
const MEDIA_CODES = 0xd000;

interface Mark {
  readonly kept: number;
  readonly size: number;
  readonly salts: number;
}

/** Prompt text as it comes: what of it is keyed, how much it is, and what else belongs to the blocks from some block on. */
class Text {
  readonly prompts: { readonly kept: string; readonly size: number }[] = [];
  furtherTokens = 0;
  salts: { readonly block: number; readonly text: string }[] = [];
  private kept = "";
  private size = 0;
  private readonly blockBytes: number;
  private readonly room: number;

  constructor(
    private readonly options: ReadOptions,
    private readonly media: (text: string) => number,
  ) {
    this.blockBytes = options.blockTokens * 4;
    this.room = this.blockBytes * options.maxBlocks;
  }

  reset(): void {
    this.prompts.length = 0;
    this.furtherTokens = 0;
    this.salts = [];
    this.kept = "";
    this.size = 0;
  }

  /** Whole blocks so far. Only messages ask, and they are one prompt. */
  get blocks(): number {
    return this.blockBytes === 0 ? 0 : Math.min(Math.floor(this.size / this.blockBytes), this.options.maxBlocks);
  }

  save(): Mark {
    return { kept: this.kept.length, size: this.size, salts: this.salts.length };
  }

  restore(mark: Mark): void {
    this.kept = this.kept.slice(0, mark.kept);
    this.size = mark.size;
    this.salts = this.salts.slice(0, mark.salts);
  }

  add(bytes: string): void {
    if (this.kept.length < this.room) this.kept += bytes.slice(0, this.room - this.kept.length);
    this.size += bytes.length;
  }

  addId(id: number): void {
    this.add(this.options.wrong === "ids-are-bytes" ? String.fromCharCode(id & 255) : String.fromCharCode(id & 255, (id >>> 8) & 255, (id >>> 16) & 255, id >>> 24));
  }

  /** Bytes that count and have no content of their own. */
  addRoom(size: number): void {
    if (size === 0) return;
    const left = this.room - this.kept.length;
    if (left > 0) this.kept += ROOM + MORE_ROOM.repeat(Math.min(size, left) - 1);
    this.size += size;
  }

  /** A medium's place holders, from a token's start on. */
  addMedium(what: string, tokens: number): void {
    if (this.size % 4 !== 0 && this.options.wrong !== "media-unaligned") this.addRoom(4 - (this.size % 4));
    const size = Math.min(tokens * 4, Math.floor((MOST_BYTES - Math.min(this.size, MOST_BYTES)) / 4) * 4);
    const left = this.room - this.kept.length;
    if (left > 0) this.kept += String.fromCharCode(FIRST_MEDIUM + (this.media(what) % MEDIA_CODES)).repeat(Math.min(size, left));
    this.size += size;
  }

  /** What has no place in the text: mixed in with the first block that has not been left behind. In the order of the blocks, and for one block in the order of coming. */
  addSalt(block: number, text: string): void {
    const at = this.salts.findLastIndex((salt) => salt.block <= block) + 1;
    this.salts.splice(at, 0, { block, text });
  }

  /** An empty prompt leaves nothing. */
  endPrompt(): void {
    if (this.size > 0) {
      if (this.prompts.length === MOST_PROMPTS) this.furtherTokens += Math.ceil(this.size / 4);
      else this.prompts.push({ kept: this.kept, size: this.size });
    }
    this.kept = "";
    this.size = 0;
  }

  /** What each block of prompt `index` holds; the last one may be a partial one. */
  blocksOf(index: number, most: number): string[] {
    const prompt = this.prompts[index];
    if (prompt === undefined || this.blockBytes === 0) return [];
    const blocks: string[] = [];
    for (let at = 0; at < prompt.kept.length && blocks.length < most; at += this.blockBytes) {
      if (this.options.wrong === "tail-has-no-key" && at + this.blockBytes > prompt.kept.length) break;
      const block = prompt.kept.slice(at, at + this.blockBytes);
      // Room that goes on is told by its size in this block.
      blocks.push(block.startsWith(MORE_ROOM) ? ROOM + block.slice(1) : block);
    }
    return blocks;
  }
}

/** A message or a text in front, while its parts are read. */
interface PartState {
  type: string;
  texts: number;
  nested: boolean;
  uuid: string;
  media: Map<string, MediaState>;
}

interface MediaState {
  url: string;
  data: string;
  format: string | null;
  pixels: number;
}

class Reading {
  private readonly main: Text;
  private readonly front: Text;
  private readonly media: MediaPart[] = [];
  private prompts = 0;
  private strange = false;
  private features = 0;
  private depthOfParts = 0;

  constructor(
    private readonly body: Buffer,
    private readonly options: ReadOptions,
    private readonly identities: Identities,
  ) {
    const code = (what: string): number => identities.of(`medium ${what}`);
    this.main = new Text(options, code);
    this.front = new Text(options, code);
  }

  view(root: Node): PlainView {
    const { options } = this;
    const isObject = root.kind === "object";
    this.readPrompt(root);
    const last = (name: string): Node | undefined => lastOf(root, name);
    const { distinct, items } = this.distinctItems();
    const counted = options.shape !== "other" && isObject && !this.strange;
    return {
      error: null,
      errorOffset: -1,
      isObject,
      objectStart: isObject ? root.start : -1,
      objectEnd: isObject ? root.end : -1,
      members: options.spans && isObject ? this.members(root) : [],
      media: this.media,
      neverSplit: this.neverSplit(root),
      stream: last("stream")?.kind === "true",
      duplicates: options.strict ? this.anyTwice(root) : isObject && knownTwice(root, options.wrong === "bootstrap-is-one-name"),
      model: (this.textOf(last("model")) ?? "").slice(0, KEPT),
      keptFor: this.keptFor(root),
      hasPrompt: options.strict && this.hasPrompt(root),
      hasTokens: counted,
      mmItems: this.media.length + this.features,
      mmDistinct: distinct,
      items,
      ...(counted ? this.keys(root) : { tokens: 0, keys: [], spans: [] }),
    };
  }

  private text(node: Node): string {
    return decoded(this.body, node.start + 1, node.end - 1);
  }

  private textOf(node: Node | undefined): string | null {
    return node?.kind === "string" ? this.text(node) : null;
  }

  private raw(node: Node): string {
    return this.body.toString("latin1", node.start, node.end);
  }

  // ---- members ------------------------------------------------------------------------------------------------------------------------------------------------

  private members(root: Node): Member[] {
    const members: Member[] = [];
    const collect = (node: Node, parent: MemberParent, parentIndex: number): void => {
      for (const { name: text, start, value } of node.members) {
        const spelled = this.options.wrong === "escaped-names" ? this.body.toString("latin1", start + 1, start + 1 + text.length) : text;
        const name = nameIn(spelled, parent);
        if (name === undefined) continue;
        // Seen when the name has been read, which ends with its quote.
        if (members.length >= this.options.maxMembers) throw new ReadError("too_many_members", this.body.indexOf(0x22, start + 1));
        const index = members.length;
        members.push({ name, parent, parentIndex, start, valueStart: value.start, valueEnd: value.end, kind: value.kind });
        const inner = innerParent(name, parent);
        if (inner !== null && value.kind === "object") collect(value, inner, index);
      }
    };
    collect(root, "", -1);
    return members;
  }

  /** Two members of one name in one object, anywhere. */
  private anyTwice(node: Node): boolean {
    const names = new Set<string>();
    for (const { name, start, value } of node.members) {
      const key = this.options.wrong === "strict-by-spelling" ? this.body.toString("latin1", start, start + name.length) : name;
      if (names.has(key) || this.anyTwice(value)) return true;
      names.add(key);
    }
    return node.items.some((item) => this.anyTwice(item));
  }

  private keptFor(root: Node): number {
    const named = root.members.findLast(({ name, value }) => (name === "previous_response_id" || name === "conversation") && value.kind === "string");
    return named === undefined ? 0 : this.identities.of(`kept ${this.text(named.value).slice(0, KEPT)}`);
  }

  /** Messages, or a prompt that is one, in a form that the reference's parsers take. Each name stands once. */
  private hasPrompt(root: Node): boolean {
    const { shape, wrong } = this.options;
    if (root.kind !== "object" || this.strange) return false;
    const rules = RULES[shape];
    const list = rules.messages?.map((name) => lastOf(root, name)).find((node) => node !== undefined);
    const isPlain = shape === "responses" && list?.kind === "string";
    if (list !== undefined && !isPlain && wrong !== "strict-takes-any-message") {
      if (list.kind !== "array" || list.items.some((message) => !isMessage(message))) return false;
    }
    // Tool results are looked at in the text in front, too.
    if (rules.front?.some((name) => lastOf(root, name)?.items.some((part) => !contentsAreGood(part, 2))) === true) return false;
    if (lastOf(root, "prompt_embeds") !== undefined || shape === "sglang-generate") return true;
    return list === undefined ? this.prompts > 0 : isPlain || list.items.length > 0;
  }

  // ---- never split --------------------------------------------------------------------------------------------------------------------------------------------

  private neverSplit(root: Node): NeverSplit {
    const { wrong } = this.options;
    const last = (name: string): Node | undefined => lastOf(root, name);
    const sampling = wrong === "sampling-is-kept" ? root.members.findLast(({ name, value }) => name === "sampling_params" && value.kind === "object")?.value : last("sampling_params");
    const isSet = (node: Node | undefined): boolean => node !== undefined && node.kind !== "null";
    if (this.prompts > 1) return "multiple_prompts";
    if ([last("n"), last("best_of"), lastOf(sampling, "n"), lastOf(sampling, "best_of")].some((node) => this.count(node) > 1)) return "parallel_sampling";
    if (isSet(last("prompt_logprobs")) || isSet(lastOf(sampling, "prompt_logprobs"))) return "prompt_logprobs";
    // Log-probabilities of the sampled token alone are asked for with 0.
    const logprobs = last("logprobs");
    if (this.isOn(last("echo")) && ((isSet(logprobs) && logprobs?.kind !== "false") || wrong === "echo-alone")) return "prompt_logprobs";
    if (["prompt_embeds", "previous_response_id", "conversation"].some((name) => isSet(last(name)))) return "stateful_response";
    return this.isOn(last("background")) ? "stateful_response" : "";
  }

  /** The number that a scalar holds; engines take it from a text, too. */
  private number(node: Node | undefined): number {
    if (node?.kind === "number") return numberIn(this.raw(node).slice(0, KEPT));
    if (this.options.wrong === "number-text-is-none") return Number.NaN;
    return numberIn((this.textOf(node) ?? "").slice(0, KEPT));
  }

  private count(node: Node | undefined): number {
    return this.number(node) || 0;
  }

  /** Whether a switch may be on for an engine: neither absent, null nor false, and no number or text that is zero. */
  private isOn(node: Node | undefined): boolean {
    return node !== undefined && node.kind !== "null" && node.kind !== "false" && this.number(node) !== 0;
  }

  // ---- prompt -------------------------------------------------------------------------------------------------------------------------------------------------

  private readPrompt(root: Node): void {
    if (root.kind !== "object") return;
    const rules = RULES[this.options.shape];
    let taken = false;
    for (const { name, value } of root.members) {
      const isFront = rules.front?.includes(name) === true;
      if (isFront) {
        this.front.reset();
        if (value.kind === "string") this.front.add(this.text(value));
        else this.readContent(value, this.front);
      }
      if (rules.features === true && name === "features") this.readFeatures(value);
      const isMessages = rules.messages?.includes(name) === true;
      const isPrompt = rules.prompts?.includes(name) === true;
      const isIds = rules.ids?.includes(name) === true;
      if (!isMessages && !isPrompt && !isIds) continue;
      if (taken && this.options.wrong === "first-messages-win") continue;
      taken = true;
      // The last one is the one that counts.
      this.main.reset();
      this.media.length = 0;
      this.prompts = 1;
      this.strange = false;
      if (isIds) this.readIds(value);
      else if (value.kind === "string") this.main.add(this.text(value));
      else if (value.kind === "null") this.prompts = 0;
      else if (value.kind !== "array") this.strange = true;
      else if (isMessages) for (const item of value.items) this.readMessage(item);
      else this.readPrompts(value);
    }
  }

  private readFeatures(value: Node): void {
    this.features = 0;
    for (const { name, value: hashes } of value.members) {
      if (name !== "mm_hashes") continue;
      this.features = 0;
      for (const { value: list } of hashes.members) this.features += list.items.filter(({ kind }) => kind === "string").length;
    }
  }

  /** A list of prompts, or of the ids of one. */
  private readPrompts(list: Node): void {
    this.prompts = 0;
    for (const item of list.items) {
      if (item.kind === "string") {
        this.main.add(this.text(item));
        this.prompts++;
        this.main.endPrompt();
      } else if (item.kind === "array") {
        for (const id of item.items) this.readId(id);
        this.prompts++;
        this.main.endPrompt();
      } else {
        // All ids of the list are one prompt.
        if (item.kind === "number" && this.prompts === 0) this.prompts = 1;
        this.readId(item);
      }
    }
  }

  private readIds(list: Node): void {
    if (list.kind !== "array") this.strange = true;
    for (const id of list.items) this.readId(id);
  }

  private readId(node: Node): void {
    const text = node.kind === "number" ? this.raw(node) : "";
    if (/^\d+$/.test(text) && Number(text) <= 0xffff_ffff) this.main.addId(Number(text));
    else this.strange = true;
  }

  private readMessage(message: Node): void {
    if (message.kind === "string") this.main.add(this.text(message));
    if (message.kind !== "object") return;
    const { block, mark, media } = { block: this.main.blocks, mark: this.main.save(), media: this.media.length };
    let contents = 0;
    for (const { name, value } of message.members) {
      if (name !== "content") continue;
      if (contents++ > 0) {
        if (this.options.wrong === "first-content-wins") break;
        this.main.restore(mark);
        this.media.length = media;
      }
      this.readContent(value, this.main);
    }
    // The rest of a message is rendered by the engine's template: it counts by its size, and makes keys different.
    let salt = "";
    let size = 0;
    for (const [index, name] of MESSAGE_SIDES.entries()) {
      const side = lastOf(message, name);
      const what = side === undefined ? null : this.describeSide(side);
      if (side === undefined || what === null) continue;
      if (!(name === "role" && this.options.wrong === "role-is-no-key")) salt += `${name} ${what};`;
      if (index < COUNTED_SIDES) size += side.kind === "string" ? this.text(side).length : this.compactSize(side, true);
    }
    if (salt !== "") this.main.addSalt(block, salt);
    this.main.addRoom(size);
  }

  /** A message's content, a tool result's, or the text in front. */
  private readContent(content: Node, to: Text): void {
    if (content.kind === "string") to.add(this.text(content));
    for (const item of content.items) {
      if (item.kind === "string") to.add(this.text(item));
      else if (item.kind === "object" && this.depthOfParts < 2) this.readPart(item, to);
    }
  }

  private readPart(node: Node, to: Text): void {
    this.depthOfParts++;
    const block = to.blocks;
    let mark = to.save();
    const part: PartState = { type: "", texts: 0, nested: false, uuid: "", media: new Map() };
    for (const { name, value } of node.members) {
      if (name === "type") part.type = this.textOf(value) ?? "";
      else if (name === "uuid") part.uuid = this.textOf(value) === null ? "" : `text ${this.text(value)}`;
      else if (name === "text" || name === "thinking") {
        // Of two texts the last one counts.
        if (part.texts++ > 0) {
          if (this.options.wrong === "first-text-wins") continue;
          to.restore(mark);
        }
        mark = to.save();
        const text = this.textOf(value);
        // A client's billing note changes with every call and is no part of the prompt.
        if (text !== null && !(to === this.front && text.startsWith(BILLING_NOTE))) to.add(text);
      } else if (name === "content") {
        part.nested = true;
        if (this.depthOfParts < 2) this.readContent(value, to);
      } else if (HOLDERS.has(name)) part.media.set(name, this.readMedium(value));
    }
    this.endPart(node, part, block, to);
    this.depthOfParts--;
  }

  private readMedium(value: Node): MediaState {
    const state: MediaState = { url: "", data: "", format: null, pixels: 0 };
    if (value.kind === "string") {
      state.url = this.text(value);
      state.pixels = this.pixels(state.url, false);
    }
    for (const { name, value: member } of value.members) {
      const text = this.textOf(member);
      // The last one wins, whatever its kind.
      if (name === "url") {
        state.url = text ?? "";
        state.pixels = text === null ? 0 : this.pixels(text, false);
      } else if (name === "data") {
        state.data = text ?? "";
        if (text !== null) state.pixels = this.pixels(text, true);
      } else if (name === "format" || name === "media_type") state.format = text;
    }
    return state;
  }

  private pixels(text: string, bare: boolean): number {
    return this.options.wrong === "picture-size-unknown" ? 0 : picturePixels(text, bare);
  }

  private endPart(node: Node, part: PartState, block: number, to: Text): void {
    const { wrong } = this.options;
    const type = RULES[this.options.shape].media?.find((candidate) => candidate === part.type);
    const whole = this.describePart(node, this.depthOfParts, this.depthOfParts === 1 ? 1 : 3);
    if (type !== undefined) {
      const medium = part.media.get(MEDIA_HOLDERS[type]) ?? { url: "", data: "", format: null, pixels: 0 };
      const isAudio = type === "input_audio";
      const byUrl = medium.url !== "" && !isAudio;
      let what = `part ${whole ?? "nothing"}`;
      if (byUrl) what = `url ${medium.url}`;
      else if (medium.data !== "") what = medium.format === null ? `text ${medium.data}` : `text ${medium.data} as ${medium.format}`;
      else if (part.uuid !== "") what = part.uuid;
      const tokens = this.mediaTokens(type, medium, byUrl);
      to.addMedium(what, tokens);
      // Parts are merged when they are equal as a whole, and only when they name their medium.
      const merges = part.texts === 0 && (byUrl || (type === "image" && medium.data !== "") || (wrong === "inline-audio-merges" && isAudio));
      if (to === this.main && this.media.length < MOST_MEDIA) {
        const key = merges ? this.identities.of(wrong === "media-by-url-only" ? `same ${what}` : `same ${what} in ${whole ?? "nothing"} ${part.uuid}`) : 0;
        this.media.push({ type, start: node.start, end: node.end, tokens, key });
      }
    } else if (part.texts === 0 && whole !== null) {
      // A tool's use or result, a file: the engine renders it.
      to.addSalt(block, `part ${whole}`);
      if (!part.nested) to.addRoom(this.compactSize(node, true));
    }
  }

  private mediaTokens(type: MediaType, medium: MediaState, byUrl: boolean): number {
    const { estimate } = this.options;
    switch (type) {
      case "image_url":
      case "input_image":
      case "image":
        return estimate.imageStatic !== 0 ? estimate.imageStatic : Math.max(1, Math.floor((medium.pixels === 0 ? estimate.imagePixels : medium.pixels) / estimate.imageFactor));
      case "video_url":
        return Math.max(1, estimate.videoTokens);
      case "audio_url":
        return Math.max(1, Math.ceil((byUrl ? medium.url.length : 0) / 4));
      case "input_audio":
        return Math.max(1, Math.ceil((medium.data.length + (medium.format ?? "").length) / 4));
    }
  }

  // ---- keys ---------------------------------------------------------------------------------------------------------------------------------------------------

  private keys(root: Node): Pick<PlainView, "tokens" | "keys" | "spans"> {
    const { main, front, identities, options } = this;
    main.endPrompt();
    front.endPrompt();
    const model = this.textOf(lastOf(root, "model"));
    let begin = model === null || options.wrong === "model-is-no-key" ? "prompt" : `prompt of ${model}`;
    for (const name of SIDES) {
      if (name === "features" && options.shape !== "generate") continue;
      const side = lastOf(root, name);
      const what = side === undefined ? null : this.describeSide(side);
      if (what !== null && !(name === "cache_salt" && options.wrong === "salt-is-no-key")) begin += `;${name} ${what}`;
    }
    const tools = lastOf(root, "tools");
    const toolsBytes = tools === undefined || options.wrong === "tools-count-nothing" || this.describeSide(tools) === null ? 0 : this.compactSize(tools, true);

    const keys: number[] = [];
    // Small blocks are hashed in another way; those of one size never meet those of another.
    const start = identities.of(options.blockTokens * 4 >= WIDE_BYTES ? `${begin} in wide blocks` : begin);
    const follow = (id: number, blocks: readonly string[], salts: Text["salts"]): number => {
      let next = 0;
      for (const [index, block] of blocks.entries()) {
        let what = `${String(id)}:`;
        for (let salt = salts[next]; salt !== undefined && salt.block <= index; salt = salts[++next]) what += `{${salt.text}}`;
        id = identities.of(`${what}:${block}`);
        keys.push(id);
      }
      return id;
    };

    // The text in front is its own run of blocks, so that all conversations with one system prompt share its keys.
    const frontSize = front.prompts[0]?.size ?? 0;
    const frontBlocks = front.blocksOf(0, options.maxBlocks);
    const afterFront = follow(start, frontBlocks, front.salts);
    const frontTokens = Math.ceil(frontSize / 4);
    const spans: PromptSpan[] = [];
    let tokens = 0;
    const count = Math.max(main.prompts.length, frontSize > 0 || toolsBytes > 0 ? 1 : 0);
    for (let index = 0; index < count; index++) {
      const first = index === 0;
      const size = main.prompts[index]?.size ?? 0;
      const inFront = first ? frontBlocks.length : 0;
      const blocks = main.blocksOf(index, options.maxBlocks - (options.wrong === "front-is-prompt" ? 0 : inFront));
      const promptTokens = Math.ceil((size + (first ? toolsBytes + frontSize : 0)) / 4);
      spans.push({
        first: first ? 0 : keys.length,
        count: blocks.length + inFront,
        tokens: promptTokens,
        lead: first ? Math.ceil(toolsBytes / 4) : 0,
        frontBlocks: inFront,
        frontTail: inFront > 0 ? Math.max(0, frontTokens - (inFront - 1) * options.blockTokens) : 0,
        partial: size < blocks.length * options.blockTokens * 4,
      });
      tokens += promptTokens;
      follow(first ? afterFront : start, blocks, first ? main.salts : []);
    }
    return { tokens: tokens + main.furtherTokens, keys, spans };
  }

  private distinctItems(): { distinct: number; items: PlainView["items"] } {
    const seen = new Set<number>();
    const items: { key: number; tokens: number }[] = [];
    for (const { key, tokens } of this.media) {
      if (key !== 0 && seen.has(key)) continue;
      seen.add(key);
      items.push({ key, tokens });
    }
    // Nothing tells one feature from another.
    for (let index = 0; index < this.features; index++) items.push({ key: 0, tokens: 1 });
    return { distinct: items.length, items: items.slice(0, MOST_ITEMS) };
  }

  // ---- descriptions of values that are hashed as a whole ------------------------------------------------------------------------------------------------------

  /** A member beside the text; null when it says nothing: null, an empty list or object. */
  private describeSide(node: Node): string | null {
    if (node.kind === "null" || isEmpty(node)) return null;
    return this.describe(node, 1, null);
  }

  /** A content part without its text, which stands in the blocks. */
  private describePart(node: Node, depthOfParts: number, level: number): string | null {
    if (level === 1 && isEmpty(node)) return null;
    return this.describe(node, level, depthOfParts);
  }

  /**
   * White space, the order of members and how a text is spelt make no difference; numbers do as they are written. Cache markers are left out.
   *
   * @param level of what is inside `node`
   * @param part how deep a part it is; null: it is none
   */
  private describe(node: Node, level: number, part: number | null): string {
    switch (node.kind) {
      case "string":
        return JSON.stringify(this.text(node));
      case "number":
        return this.raw(node);
      case "null":
      case "true":
      case "false":
        return node.kind;
      case "array":
        return `[${node.items.map((item) => this.describe(item, level + 1, null)).join(",")}]`;
      case "object": {
        const texts: string[] = [];
        for (const { name, value } of node.members) {
          if (name === "cache_control" && this.options.wrong !== "cache-control-counts") continue;
          if (part !== null && (name === "text" || name === "thinking")) continue;
          const what = part === 1 && name === "content" ? this.describeContent(value, level + 1) : this.describe(value, level + 1, null);
          texts.push(`${JSON.stringify(name)}:${what}`);
        }
        if (level <= FREE_LEVELS && this.options.wrong !== "members-in-order") texts.sort();
        return `{${texts.join(",")}}`;
      }
    }
  }

  /** A tool result's content: text in it stands in the blocks. */
  private describeContent(node: Node, level: number): string {
    if (node.kind === "string") return "text";
    if (node.kind !== "array") return this.describe(node, level, null);
    return `[${node.items.map((item) => (item.kind === "string" ? "text" : this.describe(item, level + 1, item.kind === "object" ? 2 : null))).join(",")}]`;
  }

  /** Bytes of a value without white space and cache markers; a text's quotes are not counted when it is all there is. */
  private compactSize(node: Node, alone: boolean): number {
    switch (node.kind) {
      case "string":
        return node.end - node.start - (alone ? 2 : 0);
      case "number":
        return node.end - node.start;
      case "null":
      case "true":
      case "false":
        return alone ? 0 : node.kind.length;
      case "array":
        return node.items.length === 0 ? 2 : node.items.reduce((sum, item) => sum + this.compactSize(item, false) + 1, 1);
      case "object":
        if (node.members.length === 0) return 2;
        return node.members.filter(({ name }) => name !== "cache_control").reduce((sum, member) => sum + this.nameSize(member) + 1 + this.compactSize(member.value, false) + 1, 1);
    }
  }

  /** As it is spelt, with its quotes. */
  private nameSize({ start }: NamedNode): number {
    let at = start + 1;
    while (this.body[at] !== 0x22) at += this.body[at] === 0x5c ? 2 : 1;
    return at + 1 - start;
  }
}

/** An object whose role is a text and whose content a text, a list or null, a tool result's content too. */
function isMessage(message: Node): boolean {
  return message.kind === "object" && message.members.every(({ name, value }) => name !== "role" || value.kind === "string") && contentsAreGood(message, 1);
}

/** @param depth 1: of a message, 2: of a part */
function contentsAreGood(holder: Node, depth: number): boolean {
  return holder.members.every(({ name, value }) => {
    if (name !== "content") return true;
    if (value.kind !== "string" && value.kind !== "array" && value.kind !== "null") return false;
    return depth === 2 || value.items.every((part) => contentsAreGood(part, depth + 1));
  });
}

function isEmpty(node: Node): boolean {
  return (node.kind === "array" && node.items.length === 0) || (node.kind === "object" && node.members.length === 0);
}

function nameIn(name: string, parent: MemberParent): MemberName | undefined {
  if (parent !== "") return INNER_NAMES[parent].get(name);
  return name.startsWith("bootstrap_") ? "bootstrap" : TOP_NAMES.get(name);
}

function innerParent(name: MemberName, parent: MemberParent): MemberParent | null {
  if (parent === "" && name === "vllm_xargs") return "vllm_xargs";
  if (parent === "" && name === "sampling_params") return "sampling_params";
  if (parent === "sampling_params" && name === "extra_args") return "sampling_params.extra_args";
  return null;
}

/** A name that means something here, twice. What begins with bootstrap_ need not be one name. */
function knownTwice(root: Node, bootstrapToo: boolean): boolean {
  const known = root.members.map(({ name }) => (bootstrapToo && name.startsWith("bootstrap_") ? "n" : name)).filter((name) => KNOWN_NAMES.has(name));
  return new Set(known).size < known.length;
}

/** The member's value that an engine takes: the last of equal names. */
function lastOf(node: Node | undefined, name: string): Node | undefined {
  return node?.members.findLast((member) => member.name === name)?.value;
}

/**
 * The number that a text holds, NaN when it is none: digits with signs, points and exponents between, blanks and underscores left out. Engines take the plain ones only; of the
 * others it is enough to read them always alike.
 */
function numberIn(text: string): number {
  if (!/\d/.test(text) || !/^[\d+\-.eE_\u0000-\u0020]*$/.test(text)) return Number.NaN;
  let mantissa = "";
  let scale = 0;
  let exponent = "";
  let sign = "";
  let exponentSign = "";
  let place = "";
  for (const letter of text.toLowerCase()) {
    if (letter >= "0" && letter <= "9") {
      if (place === "e") exponent += letter;
      else {
        mantissa += letter;
        if (place === ".") scale++;
      }
    } else if (letter === "." || letter === "e") place = letter;
    else if (letter === "-") {
      if (place === "e") exponentSign = "-";
      else sign = "-";
    }
  }
  const power = Number(`${exponentSign}${exponent === "" ? "0" : exponent}`) - scale;
  return Number(`${sign}${mantissa === "" ? "0" : mantissa}e${String(Math.max(-9999, Math.min(9999, power)))}`);
}
