/**
 * Media items of a request and what names them. As on the real engine the name is a hash of what the item is (its bytes or address, or the `uuid` that
 * the client gave) and of how it is processed; `detail` has no part in it. The simulator fetches nothing: an address stands for its bytes.
 */

import { ApiError } from "./errors.js";
import { hash32, mediaHash } from "./fingerprint.js";
import { canonical, isObject, member, type Json, type JsonObject } from "./json.js";
import { mediaToken, type TokenBuffer } from "./tokenizer.js";

export type Modality = "image" | "audio" | "video";

export interface MediaItem {
  readonly hash: string;
  readonly modality: Modality;
  /** No bytes came with it, only a `uuid` under which the engine must know it. */
  readonly uuidOnly: string | null;
  readonly uuid: string | null;
}

/** Where an item's placeholder tokens stand in the prompt. */
export interface PlacedMedia {
  readonly item: MediaItem;
  readonly start: number;
  readonly length: number;
}

/** Placeholder tokens per item. */
export const MEDIA_TOKENS: Readonly<Record<Modality, number>> = { image: 64, audio: 32, video: 128 };

const TYPES: Readonly<Record<string, Modality>> = {
  image_url: "image",
  input_image: "image",
  image: "image",
  audio_url: "audio",
  input_audio: "audio",
  video_url: "video",
};

export function modalityOf(type: string): Modality | null {
  return TYPES[type] ?? null;
}

/** What stands for the item's bytes: the address, or the data behind a data URL's comma. */
function urlIdentity(url: string): string {
  if (!url.startsWith("data:")) return url;
  const comma = url.indexOf(",");
  if (comma < 0) throw new ApiError(400, "media data URL has no comma", "messages");
  return url.slice(comma + 1);
}

function textMember(value: Json | undefined, name: string): string | null {
  if (typeof value === "string") return value;
  if (isObject(value)) {
    const inner = member(value, name);
    return typeof inner === "string" ? inner : null;
  }
  return null;
}

/** Identity of one content part's bytes, null when the part carries none. */
function partIdentity(part: JsonObject, type: string): string | null {
  if (type === "input_audio") {
    const data = textMember(member(part, "input_audio"), "data");
    return data === null ? null : data;
  }
  if (type === "image") {
    const source = member(part, "source");
    if (!isObject(source)) return null;
    const data = textMember(source, "data") ?? textMember(source, "url") ?? textMember(source, "file_id");
    return data === null ? null : urlIdentity(data);
  }
  if (type === "input_image") {
    const url = textMember(member(part, "image_url"), "url") ?? textMember(part, "file_id");
    return url === null ? null : urlIdentity(url);
  }
  const url = textMember(member(part, type), "url");
  return url === null ? null : urlIdentity(url);
}

/**
 * @param processing `mm_processor_kwargs` of the request: it changes what the encoder makes of the bytes
 * @throws ApiError 400 for a part without bytes and without a uuid
 */
export function readMediaPart(part: JsonObject, type: string, processing: Json): MediaItem | null {
  const modality = modalityOf(type);
  if (modality === null) return null;
  const identity = partIdentity(part, type);
  const uuidValue = member(part, "uuid");
  const uuid = typeof uuidValue === "string" ? uuidValue : null;
  if (identity === null && uuid === null) throw new ApiError(400, `${type} part has neither data nor a uuid`, "messages");
  const name = uuid === null ? ["data", identity ?? ""] : ["uuid", uuid];
  return { hash: mediaHash(modality, ...name, canonical(processing)), modality, uuidOnly: identity === null ? uuid : null, uuid };
}

export function pushMedia(buffer: TokenBuffer, placed: PlacedMedia[], item: MediaItem): void {
  const length = MEDIA_TOKENS[item.modality];
  placed.push({ item, start: buffer.length, length });
  buffer.pushRepeated(mediaToken(hash32(item.hash)), length);
}

/** Distinct items, in order of first appearance. */
export function distinctMedia(placed: readonly PlacedMedia[]): MediaItem[] {
  const seen = new Map<string, MediaItem>();
  for (const { item } of placed) if (!seen.has(item.hash)) seen.set(item.hash, item);
  return [...seen.values()];
}
