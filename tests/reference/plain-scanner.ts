/**
 * A slow, plain reader of request bodies with the face of the real scanner: the oracle that the scanner is compared with. It builds a tree of spans
 * (strict RFC 8259, strict UTF-8) and derives the view from the tree; it shares no code with what it judges.
 */
import { createHash } from "node:crypto";
import type { ApiShape, BodyScanner, BodyView, MediaItem, MediaType, Member, MemberName, MemberParent, NeverSplit, ScanError, ValueKind } from "../../sidecar/body/types.js";

/** Deeper than any body that an engine would read, and far from the stack's end: the reader keeps a stack of its own. */
export const DEFAULT_LIMITS: Limits = { maxDepth: 1_000_000, maxMembers: 1_000_000 };

export interface Limits {
  /** Arrays and objects that may be open at once. */
  readonly maxDepth: number;
  /** Known members that may be reported. */
  readonly maxMembers: number;
}

export function createPlainScanner(shape: ApiShape, limits: Limits = DEFAULT_LIMITS): BodyScanner {
  const pieces: Uint8Array[] = [];
  return {
    feed: (piece) => {
      pieces.push(piece);
    },
    end: () => readBody(Buffer.concat(pieces), shape, limits),
    dispose: () => {
      pieces.length = 0;
    },
  };
}

/** One value of the tree. `members` is set for objects, `items` for arrays. */
export interface Node {
  kind: ValueKind;
  start: number;
  end: number;
  members: { readonly name: string; readonly start: number; readonly value: Node }[];
  items: Node[];
}

class ReadError extends Error {
  constructor(
    readonly error: ScanError,
    readonly offset: number,
  ) {
    super(`${error} at ${String(offset)}`);
  }
}

const BOM = [0xef, 0xbb, 0xbf] as const;

export function readBody(body: Buffer, shape: ApiShape, limits: Limits = DEFAULT_LIMITS): BodyView {
  try {
    const root = readTree(body, limits);
    return viewOf(body, root, shape, limits);
  } catch (error) {
    if (!(error instanceof ReadError)) throw error;
    return {
      error: error.error,
      errorOffset: error.offset,
      isObject: false,
      objectStart: -1,
      objectEnd: -1,
      members: [],
      media: [],
      neverSplit: "",
      stream: false,
    };
  }
}

/** @throws ReadError */
export function readTree(body: Buffer, limits: Limits = DEFAULT_LIMITS): Node {
  let at = BOM.every((byte, index) => body[index] === byte) ? BOM.length : 0;
  at = skipSpace(body, at);
  if (at === body.length) throw new ReadError("empty", at);

  let root: Node | null = null;
  /** Open containers; `name` is the member that waits for its value. */
  const open: { readonly node: Node; name: string; nameStart: number }[] = [];

  const place = (node: Node): void => {
    const parent = open.at(-1);
    if (parent === undefined) root = node;
    else if (parent.node.kind === "array") parent.node.items.push(node);
    else parent.node.members.push({ name: parent.name, start: parent.nameStart, value: node });
  };

  /** Reads `"name":` of the object on top and leaves `at` before the value. */
  const readName = (): void => {
    const top = open.at(-1);
    if (top === undefined) throw new Error("no open object");
    if (at === body.length) throw new ReadError("truncated", at);
    if (body[at] !== 0x22) throw new ReadError("invalid_json", at);
    const end = readString(body, at);
    top.name = unescape(body, at, end);
    top.nameStart = at;
    at = skipSpace(body, end);
    if (at === body.length) throw new ReadError("truncated", at);
    if (body[at] !== 0x3a) throw new ReadError("invalid_json", at);
    at = skipSpace(body, at + 1);
  };

  for (;;) {
    // A value is due at `at`.
    if (at === body.length) throw new ReadError("truncated", at);
    const byte = body[at] ?? 0;
    if (byte === 0x7b || byte === 0x5b) {
      const node: Node = { kind: byte === 0x7b ? "object" : "array", start: at, end: -1, members: [], items: [] };
      if (open.length >= limits.maxDepth) throw new ReadError("too_deep", at);
      place(node);
      open.push({ node, name: "", nameStart: -1 });
      at = skipSpace(body, at + 1);
      if (at === body.length) throw new ReadError("truncated", at);
      if (body[at] !== (byte === 0x7b ? 0x7d : 0x5d)) {
        if (byte === 0x7b) readName();
        continue;
      }
    } else {
      const start = at;
      const kind = scalarKind(body, at);
      if (kind === "string") at = readString(body, at);
      else if (kind === "number") at = readNumber(body, at);
      else at = readWord(body, at, kind);
      place({ kind, start, end: at, members: [], items: [] });
      at = skipSpace(body, at);
    }
    // A value has ended, or an empty container stands before its end: close what closes here.
    for (;;) {
      const top = open.at(-1);
      if (top === undefined) {
        if (at !== body.length) throw new ReadError("invalid_json", at);
        if (root === null) throw new Error("no root");
        return root;
      }
      if (at === body.length) throw new ReadError("truncated", at);
      const isArray = top.node.kind === "array";
      if (body[at] === (isArray ? 0x5d : 0x7d)) {
        at += 1;
        top.node.end = at;
        open.pop();
        at = skipSpace(body, at);
        continue;
      }
      if (body[at] !== 0x2c) throw new ReadError("invalid_json", at);
      at = skipSpace(body, at + 1);
      if (!isArray) readName();
      break;
    }
  }
}

function skipSpace(body: Buffer, at: number): number {
  while (at < body.length) {
    const byte = body[at];
    if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d) break;
    at += 1;
  }
  return at;
}

function scalarKind(body: Buffer, at: number): Exclude<ValueKind, "object" | "array"> {
  const byte = body[at] ?? 0;
  if (byte === 0x22) return "string";
  if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) return "number";
  if (byte === 0x74) return "true";
  if (byte === 0x66) return "false";
  if (byte === 0x6e) return "null";
  throw new ReadError("invalid_json", at);
}

function readWord(body: Buffer, at: number, word: string): number {
  for (let index = 0; index < word.length; index++) {
    if (at + index === body.length) throw new ReadError("truncated", at + index);
    if (body[at + index] !== word.charCodeAt(index)) throw new ReadError("invalid_json", at + index);
  }
  return at + word.length;
}

function readNumber(body: Buffer, at: number): number {
  const isDigit = (offset: number): boolean => (body[offset] ?? 0) >= 0x30 && (body[offset] ?? 0) <= 0x39;
  const digits = (): void => {
    if (at === body.length) throw new ReadError("truncated", at);
    if (!isDigit(at)) throw new ReadError("invalid_json", at);
    while (isDigit(at)) at += 1;
  };
  if (body[at] === 0x2d) at += 1;
  if (body[at] === 0x30) at += 1;
  else digits();
  if (body[at] === 0x2e) {
    at += 1;
    digits();
  }
  if (body[at] === 0x65 || body[at] === 0x45) {
    at += 1;
    if (body[at] === 0x2b || body[at] === 0x2d) at += 1;
    digits();
  }
  return at;
}

/** @returns the offset behind the closing quote */
function readString(body: Buffer, at: number): number {
  at += 1;
  while (at < body.length) {
    const byte = body[at] ?? 0;
    if (byte === 0x22) return at + 1;
    if (byte < 0x20) throw new ReadError("invalid_json", at);
    if (byte === 0x5c) {
      at = readEscape(body, at);
    } else if (byte < 0x80) {
      at += 1;
    } else {
      at = readSequence(body, at);
    }
  }
  throw new ReadError("truncated", at);
}

function readEscape(body: Buffer, at: number): number {
  if (at + 1 >= body.length) throw new ReadError("truncated", at + 1);
  const letter = String.fromCharCode(body[at + 1] ?? 0);
  if ('"\\/bfnrt'.includes(letter)) return at + 2;
  if (letter !== "u") throw new ReadError("invalid_json", at + 1);
  for (let index = at + 2; index < at + 6; index++) {
    if (index >= body.length) throw new ReadError("truncated", index);
    if (!/[0-9a-fA-F]/.test(String.fromCharCode(body[index] ?? 0))) throw new ReadError("invalid_json", index);
  }
  return at + 6;
}

/** One multi-byte UTF-8 sequence: no overlong forms, no surrogates, nothing above U+10FFFF. An error stands at its first byte. */
function readSequence(body: Buffer, at: number): number {
  const first = body[at] ?? 0;
  let length = 0;
  let low = 0x80;
  let high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first === 0xe0) low = 0xa0;
    if (first === 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first === 0xf0) low = 0x90;
    if (first === 0xf4) high = 0x8f;
  } else {
    throw new ReadError("invalid_utf8", at);
  }
  for (let index = 1; index < length; index++) {
    if (at + index >= body.length) throw new ReadError("truncated", body.length);
    const byte = body[at + index] ?? 0;
    if (byte < (index === 1 ? low : 0x80) || byte > (index === 1 ? high : 0xbf)) throw new ReadError("invalid_utf8", at);
  }
  return at + length;
}

/** The text of a string token (quotes included in the span), escapes resolved; lone surrogates stay what they are. */
function unescape(body: Buffer, start: number, end: number): string {
  return JSON.parse(body.toString("utf8", start, end)) as string;
}

const KNOWN_NAMES: readonly MemberName[] = [
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

/** What is reported of the inner objects: what stages edit or remove there. */
const INNER_NAMES: Readonly<Record<Exclude<MemberParent, "">, readonly MemberName[]>> = {
  vllm_xargs: ["kv_transfer_params", "ec_transfer_params"],
  sampling_params: ["max_tokens", "min_tokens", "n", "best_of", "prompt_logprobs", "logprobs", "extra_args"],
  "sampling_params.extra_args": ["kv_transfer_params", "ec_transfer_params"],
};

function knownName(name: string, parent: MemberParent): MemberName | null {
  if (parent !== "") return INNER_NAMES[parent].find((known) => known === name) ?? null;
  if (name.startsWith("bootstrap_")) return "bootstrap";
  return KNOWN_NAMES.find((known) => known === name) ?? null;
}

function childParent(name: MemberName, parent: MemberParent): MemberParent | null {
  if (parent === "" && name === "vllm_xargs") return "vllm_xargs";
  if (parent === "" && name === "sampling_params") return "sampling_params";
  if (parent === "sampling_params" && name === "extra_args") return "sampling_params.extra_args";
  return null;
}

function viewOf(body: Buffer, root: Node, shape: ApiShape, limits: Limits): BodyView {
  const members: Member[] = [];
  const collect = (node: Node, parent: MemberParent, parentIndex: number): void => {
    for (const { name: text, start, value } of node.members) {
      const name = knownName(text, parent);
      if (name === null) continue;
      if (members.length >= limits.maxMembers) throw new ReadError("too_many_members", start);
      const index = members.length;
      members.push({ name, parent, parentIndex, start, valueStart: value.start, valueEnd: value.end, kind: value.kind });
      const inner = childParent(name, parent);
      if (inner !== null && value.kind === "object") collect(value, inner, index);
    }
  };
  const isObject = root.kind === "object";
  if (isObject) collect(root, "", -1);
  return {
    error: null,
    errorOffset: -1,
    isObject,
    objectStart: isObject ? root.start : -1,
    objectEnd: isObject ? root.end : -1,
    members,
    media: mediaOf(body, root, shape),
    neverSplit: neverSplitOf(body, root, shape),
    stream: last(root, "stream")?.kind === "true",
  };
}

/** The member's value that an engine takes: the last of equal names. */
function last(node: Node | undefined, name: string): Node | undefined {
  return node?.members.findLast((member) => member.name === name)?.value;
}

function textOf(body: Buffer, node: Node | undefined): string | null {
  return node?.kind === "string" ? unescape(body, node.start, node.end) : null;
}

function mediaOf(body: Buffer, root: Node, shape: ApiShape): MediaItem[] {
  if (shape !== "chat" && shape !== "messages" && shape !== "responses") return [];
  const types: readonly MediaType[] = ["image_url", "audio_url", "video_url", "input_audio", ...OWN_MEDIA[shape]];
  const items: MediaItem[] = [];
  // Parts in parts (a tool's result) are read one level deep.
  const read = (holder: Node | undefined, deeper: boolean): void => {
    for (const part of last(holder, "content")?.items ?? []) {
      if (deeper) read(part, false);
      const typeText = textOf(body, last(part, "type"));
      const type = types.find((candidate) => candidate === typeText);
      if (type !== undefined) items.push({ type, start: part.start, end: part.end, key: mergeKey(body, part, type) });
    }
  };
  for (const turn of last(root, shape === "responses" ? "input" : "messages")?.items ?? []) read(turn, true);
  return items;
}

/** Kinds of parts that are media in one API only. */
const OWN_MEDIA: Readonly<Record<"chat" | "messages" | "responses", readonly MediaType[]>> = { chat: [], messages: ["image"], responses: ["input_image"] };

/** Parts are merged when they are equal as a whole, and only when they name their medium by a URL. */
function mergeKey(body: Buffer, part: Node, type: MediaType): bigint {
  if (type === "input_audio") return 0n;
  const holder = last(part, type === "input_image" ? "image_url" : type === "image" ? "source" : type);
  const named = textOf(body, holder) ?? textOf(body, last(holder, "url"));
  // Anthropic's inline pictures are what chat's data URLs are.
  const url = type === "image" && (named === null || named === "") ? textOf(body, last(holder, "data")) : named;
  if (url === null || url === "") return 0n;
  const key = createHash("sha256").update(canonical(body, part)).digest().readBigUInt64BE(0);
  return key === 0n ? 1n : key;
}

/** One text for all spellings of a value: no white space, members sorted by name with the last of equals, escapes resolved; numbers as written. */
export function canonical(body: Buffer, node: Node): string {
  if (node.kind === "string") return JSON.stringify(unescape(body, node.start, node.end));
  if (node.kind === "array") return `[${node.items.map((item) => canonical(body, item)).join(",")}]`;
  if (node.kind !== "object") return body.toString("latin1", node.start, node.end);
  const byName = new Map(node.members.map(({ name, value }) => [name, value]));
  const names = [...byName.keys()].sort((a, b) => (a < b ? -1 : 1));
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(body, byName.get(name) ?? node)}`).join(",")}}`;
}

function neverSplitOf(body: Buffer, root: Node, shape: ApiShape): NeverSplit {
  const sampling = last(root, "sampling_params");
  const isSet = (node: Node | undefined): boolean => node !== undefined && node.kind !== "null";

  const prompt = last(root, "prompt");
  if (shape === "completions" && prompt?.kind === "array" && prompt.items.filter(({ kind }) => kind === "string" || kind === "array").length > 1) {
    return "multiple_prompts";
  }

  for (const name of ["n", "best_of"]) {
    for (const holder of [root, sampling]) {
      if (aboveOne(body, last(holder, name))) return "parallel_sampling";
    }
  }

  if (isSet(last(root, "prompt_logprobs")) || isSet(last(sampling, "prompt_logprobs"))) return "prompt_logprobs";
  const logprobs = last(root, "logprobs");
  // Log-probabilities of the sampled token alone are asked for with 0.
  if (isOn(body, last(root, "echo")) && isSet(logprobs) && logprobs?.kind !== "false") return "prompt_logprobs";

  if (["prompt_embeds", "previous_response_id", "conversation"].some((name) => isSet(last(root, name)))) return "stateful_response";
  if (isOn(body, last(root, "background"))) return "stateful_response";
  return "";
}

/** Engines coerce: `3`, `3.0`, `3e0` and `"3"` all ask for three. */
function aboveOne(body: Buffer, node: Node | undefined): boolean {
  if (node?.kind === "number") return Number(body.toString("latin1", node.start, node.end)) > 1;
  return numberIn(textOf(body, node) ?? "") > 1;
}

/** The number that a text begins with, 0 where it only looks like one; NaN when it is no number at all. What is between, no engine takes. */
function numberIn(text: string): number {
  return /^[-+.eE\d ]*\d[-+.eE\d ]*$/.test(text) ? Number.parseFloat(text) || 0 : Number.NaN;
}

/** Whether a switch may be on for an engine: neither absent, null nor false, and no number or text that is zero. */
function isOn(body: Buffer, node: Node | undefined): boolean {
  if (node === undefined || node.kind === "null" || node.kind === "false") return false;
  if (node.kind === "number") return Number(body.toString("latin1", node.start, node.end)) !== 0;
  return numberIn(textOf(body, node) ?? "") !== 0;
}
