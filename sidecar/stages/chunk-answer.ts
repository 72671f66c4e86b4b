import { bytesOf, elementsOf, lastMember, membersOf, readValue, type Span, stringOf } from "../body/json-spans.js";

/** One chunk's answer, read for what is joined; spans are of `bytes`. */
export interface ChunkAnswer {
  readonly bytes: Buffer;
  readonly root: Span;
  readonly choice: Span;
  /** The text as the inside of a JSON string. */
  readonly text: Buffer;
  /** Value of `message.content`; null: the member is absent. */
  readonly content: Span | null;
  readonly message: Span;
  /** The list in `logprobs.content`; null: none was asked for. */
  readonly logprobs: Span | null;
  readonly finish: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Null: the engine gave none. */
  readonly usage: Span | null;
  /** Text is all that the message says: what it says can be gone on with. */
  readonly plain: boolean;
}

/** Members of a message that say something beside its text. */
const OTHER_WORDS = ["tool_calls", "function_call", "refusal", "audio", "reasoning", "reasoning_content"];

/** Null: not the answer to a chat request with one choice. */
export function readChunk(bytes: Buffer): ChunkAnswer | null {
  const root = readValue(bytes);
  if (root?.kind !== "object") return null;
  const choices = lastMember(bytes, root, "choices");
  const [choice, second] = choices === null ? [] : elementsOf(bytes, choices);
  const message = lastMember(bytes, choice ?? null, "message");
  if (choice === undefined || second !== undefined || message?.kind !== "object") return null;
  const content = lastMember(bytes, message, "content");
  const usage = lastMember(bytes, root, "usage");
  return {
    bytes,
    root,
    choice,
    message,
    content,
    text: content?.kind === "string" ? bytes.subarray(content.start + 1, content.end - 1) : Buffer.alloc(0),
    logprobs: lastMember(bytes, lastMember(bytes, choice, "logprobs"), "content"),
    finish: stringOf(bytes, lastMember(bytes, choice, "finish_reason")) ?? "",
    promptTokens: numberIn(bytes, usage, "prompt_tokens"),
    completionTokens: numberIn(bytes, usage, "completion_tokens"),
    usage: usage?.kind === "object" ? usage : null,
    plain: OTHER_WORDS.every((name) => isEmpty(bytes, lastMember(bytes, message, name))),
  };
}

function numberIn(bytes: Buffer, object: Span | null, name: string): number {
  const span = lastMember(bytes, object, name);
  return span?.kind === "number" ? Number(bytesOf(bytes, span).toString()) : 0;
}

function isEmpty(bytes: Buffer, span: Span | null): boolean {
  if (span === null || span.kind === "null") return true;
  return span.kind === "array" ? elementsOf(bytes, span).length === 0 : span.kind === "string" && span.end - span.start === 2;
}

/** The chunks of one answer, joined: what a single call would have given. */
export class JoinedChunks {
  readonly #chunks: ChunkAnswer[] = [];
  #completionTokens = 0;

  add(chunk: ChunkAnswer): void {
    this.#chunks.push(chunk);
    this.#completionTokens += chunk.completionTokens;
  }

  get count(): number {
    return this.#chunks.length;
  }

  get completionTokens(): number {
    return this.#completionTokens;
  }

  /** All text, as the inside of a JSON string. */
  get text(): readonly Buffer[] {
    return this.#chunks.map(({ text }) => text);
  }

  /** The last chunk's answer with the text, log-probabilities and usage of all; null before the first. */
  whole(): Buffer[] | null {
    const last = this.#chunks.at(-1);
    if (last === undefined) return null;
    const splices: { at: Span; parts: readonly Buffer[] }[] = [];
    const quoted = [Buffer.from('"'), ...this.text, Buffer.from('"')];
    if (last.content !== null) splices.push({ at: last.content, parts: quoted });
    else splices.push(insertion(last, last.message, "content", quoted));
    if (last.logprobs?.kind === "array") splices.push({ at: last.logprobs, parts: [Buffer.from("["), ...this.#logprobs(), Buffer.from("]")] });
    if (last.usage !== null) splices.push({ at: last.usage, parts: this.usage() });
    const out: Buffer[] = [];
    let at = 0;
    for (const splice of splices.sort((a, b) => a.at.start - b.at.start)) {
      out.push(last.bytes.subarray(at, splice.at.start), ...splice.parts);
      at = splice.at.end;
    }
    out.push(last.bytes.subarray(at));
    return out;
  }

  #logprobs(): Buffer[] {
    const inner = this.#chunks.flatMap(({ bytes, logprobs }) => (logprobs?.kind === "array" && elementsOf(bytes, logprobs).length > 0 ? [bytes.subarray(logprobs.start + 1, logprobs.end - 1)] : []));
    return inner.flatMap((list, index) => (index === 0 ? [list] : [Buffer.from(","), list]));
  }

  /** The first chunk's usage (later prompts hold what was said) with the tokens of all. */
  usage(): readonly Buffer[] {
    const first = this.#chunks[0];
    if (first?.usage === undefined || first.usage === null) return [Buffer.from("null")];
    const { bytes, usage, promptTokens } = first;
    const counts: Readonly<Record<string, number>> = { completion_tokens: this.#completionTokens, total_tokens: promptTokens + this.#completionTokens };
    const out: Buffer[] = [];
    let at = usage.start;
    for (const { name, value } of membersOf(bytes, usage)) {
      const count = counts[name];
      if (count === undefined) continue;
      out.push(bytes.subarray(at, value.start), Buffer.from(String(count)));
      at = value.end;
    }
    out.push(bytes.subarray(at, usage.end));
    return out;
  }
}

function insertion({ bytes }: ChunkAnswer, object: Span, name: string, json: readonly Buffer[]): { at: Span; parts: readonly Buffer[] } {
  const comma = membersOf(bytes, object).length === 0 ? "" : ",";
  return { at: { kind: "object", start: object.end - 1, end: object.end - 1 }, parts: [Buffer.from(`${comma}"${name}":`), ...json] };
}

/** Members of an answer that its events carry too. */
const CARRIED = ["id", "created", "model", "system_fingerprint", "service_tier"];

function envelope({ bytes, root }: ChunkAnswer): Buffer[] {
  const parts: Buffer[] = [Buffer.from('data: {"object":"chat.completion.chunk"')];
  for (const name of CARRIED) {
    const span = lastMember(bytes, root, name);
    if (span !== null) parts.push(Buffer.from(`,"${name}":`), bytesOf(bytes, span));
  }
  return parts;
}

/**
 * One chunk as an event of the stream that the client asked for.
 *
 * @param finish null: more follows, whatever the engine called its end
 */
export function chunkEvent(chunk: ChunkAnswer, isFirst: boolean, finish: string | null): Buffer {
  const { bytes, choice, text } = chunk;
  const logprobs = lastMember(bytes, choice, "logprobs");
  const stopReason = finish === null ? null : lastMember(bytes, choice, "stop_reason");
  return Buffer.concat([
    ...envelope(chunk),
    Buffer.from(`,"choices":[{"index":0,"delta":{${isFirst ? '"role":"assistant",' : ""}"content":"`),
    text,
    Buffer.from('"},"logprobs":'),
    logprobs === null ? Buffer.from("null") : bytesOf(bytes, logprobs),
    Buffer.from(`,"finish_reason":${finish === null ? "null" : JSON.stringify(finish)}`),
    ...(stopReason === null ? [] : [Buffer.from(',"stop_reason":'), bytesOf(bytes, stopReason)]),
    Buffer.from("}]}\n\n"),
  ]);
}

/** An event that only ends the choice. */
export function finishEvent(last: ChunkAnswer, finish: string): Buffer {
  return Buffer.concat([...envelope(last), Buffer.from(`,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":${JSON.stringify(finish)}}]}\n\n`)]);
}

/** The event with the usage of all chunks that a client can ask for. */
export function usageEvent(last: ChunkAnswer, usage: readonly Buffer[]): Buffer {
  return Buffer.concat([...envelope(last), Buffer.from(',"choices":[],"usage":'), ...usage, Buffer.from("}\n\n")]);
}
