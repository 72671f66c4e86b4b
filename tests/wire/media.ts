/** Content parts with media that no engine has seen before, and pictures that a real vision model can open. */
import { randomBytes, randomInt, randomUUID } from "node:crypto";
import { crc32, deflateSync } from "node:zlib";

function pngChunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  body.copy(framed, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}

/** A square of one colour, by default of any, as a data URL (PNG, RGB, 8 bits a channel). */
export function pictureUrl(red = randomInt(256), green = randomInt(256), blue = randomInt(256), side = 56): string {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(side, 0);
  header.writeUInt32BE(side, 4);
  // Bit depth 8, colour type 2 (RGB), no interlace.
  header.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.concat([Buffer.from([0]), Buffer.alloc(side * 3, Buffer.from([red, green, blue]))]);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const pixels = deflateSync(Buffer.concat(Array.from({ length: side }, () => row)));
  const file = Buffer.concat([signature, pngChunk("IHDR", header), pngChunk("IDAT", pixels), pngChunk("IEND", Buffer.alloc(0))]);
  return `data:image/png;base64,${file.toString("base64")}`;
}

/** JSON text of a chat part; `more`: members inside `image_url`, each with a comma in front. */
export function imagePart(url: string, more = ""): string {
  return `{"type":"image_url","image_url":{"url":"${url}"${more}}}`;
}

/** A new address, which simulated engines take for its bytes. */
export function address(name: string): string {
  return `https://media.example.test/${randomUUID()}/${name}`;
}

/** JSON text of a part with a new sound in it. */
export function audioPart(): string {
  return `{"type":"input_audio","input_audio":{"data":"${randomBytes(24).toString("base64")}","format":"wav"}}`;
}

/** A chat body with these content parts behind a text of its own. */
export function mediaBody(model: string, text: string, parts: readonly string[], more = ""): string {
  return `{"model":"${model}","temperature":0,"max_tokens":8,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"${text}"},${parts.join(", ")}]}]${more}}`;
}
