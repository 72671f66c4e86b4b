import { lastMember, readValue } from "../body/json-spans.js";
import type { MediaItem, Member, MemberName } from "../body/types.js";
import type { ReadRequest } from "../exchange.js";

/** Members of the client's body that decide what an encoder makes of an item, and nothing else (issue: the encode leg's body). */
const CARRIED: readonly MemberName[] = ["model", "mm_processor_kwargs", "cache_salt"];

/** What of the client's body goes into the leg of every item, its media aside. */
export function carriedMembers({ view }: Pick<ReadRequest, "view">): Member[] {
  return CARRIED.map((name) => view.members.findLast((member) => member.name === name && member.parent === "")).filter((member) => member !== undefined);
}

/**
 * The chat request that has one media item encoded: one user message with that part alone, one token, not streamed (EC-04). Members and part are the client's
 * bytes. Null where the item has no form that a chat request takes.
 */
export function encodeBody(request: ReadRequest, item: MediaItem): Buffer[] | null {
  const { body, view } = request;
  const part = chatPart(body.slice(item.start, item.end), item);
  if (part === null) return null;
  const out: Buffer[] = [Buffer.from("{")];
  for (const { name, valueStart, valueEnd } of carriedMembers(request)) out.push(Buffer.from(`"${name}":`), ...body.slice(valueStart, valueEnd), Buffer.from(","));
  const completionCap = view.members.some(({ name, parent }) => name === "max_completion_tokens" && parent === "") ? ',"max_completion_tokens":1' : "";
  out.push(Buffer.from('"messages":[{"role":"user","content":['), ...part, Buffer.from(`]}],"max_tokens":1${completionCap},"stream":false}`));
  return out;
}

function chatPart(part: Buffer[], { type }: MediaItem): readonly Buffer[] | null {
  switch (type) {
    case "image_url":
    case "audio_url":
    case "video_url":
    case "input_audio":
      return part;
    case "input_image":
      return chatImage(Buffer.concat(part));
    case "image":
      return anthropicImage(Buffer.concat(part));
  }
}

/** Anthropic's `{"type":"image","source":{…}}` as chat has it: inline data becomes a data URL of the same bytes. Null where the source is of another kind. */
function anthropicImage(part: Buffer): readonly Buffer[] | null {
  const source = lastMember(part, readValue(part), "source");
  const text = (name: string): Buffer | null => {
    const span = lastMember(part, source, name);
    return span?.kind === "string" ? part.subarray(span.start + 1, span.end - 1) : null;
  };
  const [type, url, mediaType, data] = [text("type")?.toString(), text("url"), text("media_type"), text("data")];
  const open = Buffer.from('{"type":"image_url","image_url":{"url":"');
  const close = Buffer.from('"}}');
  if (type === "url" && url !== null) return [open, url, close];
  if (type === "base64" && mediaType !== null && data !== null) return [open, Buffer.from("data:"), mediaType, Buffer.from(";base64,"), data, close];
  return null;
}

/** Responses' `{"type":"input_image","image_url":"…","detail":"…"}` as chat has it; null where it names no URL (a file id is known to one engine only). */
function chatImage(part: Buffer): readonly Buffer[] | null {
  const root = readValue(part);
  const url = lastMember(part, root, "image_url");
  if (url === null || (url.kind !== "string" && url.kind !== "object")) return null;
  const out: Buffer[] = [Buffer.from('{"type":"image_url","image_url":')];
  if (url.kind === "object") {
    out.push(part.subarray(url.start, url.end));
  } else {
    const detail = lastMember(part, root, "detail");
    out.push(Buffer.from('{"url":'), part.subarray(url.start, url.end));
    if (detail?.kind === "string") out.push(Buffer.from(',"detail":'), part.subarray(detail.start, detail.end));
    out.push(Buffer.from("}"));
  }
  const uuid = lastMember(part, root, "uuid");
  if (uuid !== null) out.push(Buffer.from(',"uuid":'), part.subarray(uuid.start, uuid.end));
  out.push(Buffer.from("}"));
  return out;
}
