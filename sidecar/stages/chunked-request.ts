import type { BodyEditor } from "../body/edits.js";
import { bytesOf, elementsOf, lastMember, membersOf, readValue, type Span, stringOf } from "../body/json-spans.js";
import { removeTopLevel, setTopLevel } from "../body/prefill-caps.js";
import type { BodyView, Member } from "../body/types.js";
import type { ReadRequest } from "../exchange.js";

/** What of a chat request decides how it is decoded in chunks. */
export interface ChunkedRequest {
  /** Tokens that the client wants at most; infinity: as many as there are. */
  readonly budget: number;
  /** Tokens that there must be at least. */
  readonly least: number;
  readonly hasLeast: boolean;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly messages: Member;
}

/** Members that tie an answer's parts together: a grammar, a tool call or a stop text that begins in one chunk does not end in the next. */
const TYING = ["response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag", "functions", "stop"];

/** Members that make more of an answer than one text, or have the conversation's end looked at already. */
const NOT_PLAIN = ["prompt_logprobs", "echo", "return_token_ids", "continue_final_message"];

/**
 * Reads a chat request for chunked decode; null where it is decoded in one piece: it wants no more than one chunk, more than one choice, or something that
 * chunks would lose (D20).
 */
export function chunkedRequest({ shape, body, view }: ReadRequest, chunkTokens: number): ChunkedRequest | null {
  if (shape !== "chat") return null;
  const messages = view.members.findLast(({ name, parent }) => name === "messages" && parent === "");
  if (messages?.kind !== "array") return null;
  const bytes = body.join(0, body.length);
  const root = readValue(bytes, view.objectStart, view.objectEnd);
  if (root?.kind !== "object") return null;
  const member = new Map(membersOf(bytes, root).map(({ name, value }) => [name, value]));
  const text = (name: string): string => {
    const span = member.get(name);
    return span === undefined || span.kind === "null" ? "" : bytesOf(bytes, span).toString();
  };
  const count = (name: string): number | null => (text(name) === "" ? 0 : /^[1-9]\d{0,14}$/.test(text(name)) ? Number(text(name)) : null);

  const [completion, max, least] = [count("max_completion_tokens"), count("max_tokens"), text("min_tokens") === "0" ? 0 : count("min_tokens")];
  if (completion === null || max === null || least === null) return null;
  const budget = completion > 0 ? completion : max > 0 ? max : Number.POSITIVE_INFINITY;
  if (budget <= chunkTokens || !["", "1"].includes(text("n")) || !["", "1"].includes(text("best_of"))) return null;
  if (NOT_PLAIN.some((name) => !["", "false"].includes(text(name))) || text("add_generation_prompt") === "false") return null;
  if (TYING.some((name) => isSet(bytes, member.get(name) ?? null))) return null;
  if (isSet(bytes, member.get("tools") ?? null) && stringOf(bytes, member.get("tool_choice") ?? null) !== "none") return null;
  const streamOptions = member.get("stream_options") ?? null;
  if (lastMember(bytes, streamOptions, "continuous_usage_stats")?.kind === "true") return null;
  if (elementsOf(bytes, lastMember(bytes, root, "messages") ?? root).length === 0) return null;
  return { budget, least, hasLeast: member.has("min_tokens"), stream: view.stream, includeUsage: lastMember(bytes, streamOptions, "include_usage")?.kind === "true", messages };
}

/** Whether a member asks for something: absent, null, empty and a text format do not. */
function isSet(bytes: Buffer, span: Span | null): boolean {
  switch (span?.kind) {
    case undefined:
    case "null":
    case "false":
      return false;
    case "array":
      return elementsOf(bytes, span).length > 0;
    case "object":
      return stringOf(bytes, lastMember(bytes, span, "type")) !== "text";
    case "string":
      return span.end - span.start > 2;
    case "true":
    case "number":
      return true;
  }
}

/** Where the next chunk begins. */
export interface ChunkStart {
  /** Tokens that were made so far. */
  readonly made: number;
  /** What was said so far, as the inside of a JSON string; null before the first chunk. */
  readonly said: readonly Buffer[] | null;
  /** Tokens of this chunk at most; null: what the engine has room for. */
  readonly tokens: number | null;
}

/** Makes the client's body ask for one chunk: limited, not streamed, and from the second on going on with the assistant's text where it ended. */
export function editForChunk(editor: BodyEditor, view: BodyView, request: ChunkedRequest, { made, said, tokens }: ChunkStart): void {
  if (tokens !== null) {
    setTopLevel(editor, view, "max_tokens", String(tokens));
    setTopLevel(editor, view, "max_completion_tokens", String(tokens));
    // An engine refuses more at least than at most.
    if (request.hasLeast) setTopLevel(editor, view, "min_tokens", String(Math.min(tokens, Math.max(0, request.least - made))));
  }
  setTopLevel(editor, view, "stream", "false");
  removeTopLevel(editor, view, "stream_options");
  if (said === null) return;
  setTopLevel(editor, view, "continue_final_message", "true");
  setTopLevel(editor, view, "add_generation_prompt", "false");
  // One turn of the assistant that grows, not one more for each chunk (D20).
  editor.append(request.messages, [Buffer.from('{"role":"assistant","content":"'), ...said, Buffer.from('"}')]);
}
