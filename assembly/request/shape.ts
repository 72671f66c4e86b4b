// The API shapes: which path has which, and what the top-level members of each mean. A new one is a file in shapes/ and a line here.
import { Ctx } from "./reader";
import { Name } from "./names";
import { ChatShape } from "./shapes/chat";
import { CompletionsShape } from "./shapes/completions";
import { EmbeddingsShape } from "./shapes/embeddings";
import { GenerateShape } from "./shapes/generate";
import { MessagesShape } from "./shapes/messages";
import { OtherShape } from "./shapes/other";
import { ChatRenderShape, CompletionsRenderShape } from "./shapes/render";
import { ResponsesShape } from "./shapes/responses";
import { SglangGenerateShape } from "./shapes/sglang-generate";

export class Shape {
  constructor(
    /** The path that has this shape, without query and trailing slash. */
    readonly path: string,
    /** Type of the parser that a configuration lists for it (scheduler §2.7). */
    readonly parser: string,
    /** Stages of its requests may run on other pods: the sidecar carries a plan out on this path. */
    readonly splits: bool,
    /** An engine computes the prompt, and holds it afterwards. */
    readonly computes: bool = true,
  ) {}

  /** What a top-level member holds: `Ctx.Messages`, `Prompt`, `Ids` or `Front`; `Ctx.Skip` for every other name. */
  topMember(name: Name): Ctx {
    return Ctx.Skip;
  }

  /** Whether a content part of this type is a media item. */
  isMedia(type: Name): bool {
    return false;
  }
}

export const enum ShapeId {
  Other = 0,
  Chat = 1,
  Completions = 2,
  Messages = 3,
  Responses = 4,
  Generate = 5,
  Embeddings = 6,
  SglangGenerate = 7,
  ChatRender = 8,
  CompletionsRender = 9,
}

const SHAPES: StaticArray<Shape> = [
  new OtherShape(),
  new ChatShape(),
  new CompletionsShape(),
  new MessagesShape(),
  new ResponsesShape(),
  new GenerateShape(),
  new EmbeddingsShape(),
  new SglangGenerateShape(),
  new ChatRenderShape(),
  new CompletionsRenderShape(),
];

export function shapeOf(id: u32): Shape {
  return unchecked(SHAPES[id]);
}

/** Bit i: shape i is read. Without the parser that a configuration has to list for it a shape is as good as unknown (scheduler RQ-05, RQ-06). */
export function shapesOf(parsers: string[]): u32 {
  let mask: u32 = 1;
  for (let i = 1; i < SHAPES.length; i++) if (parsers.includes(SHAPES[i].parser)) mask |= 1 << i;
  return mask;
}

/** The paths as bytes, so that a request's path is compared where it stands. */
const PATHS: StaticArray<ArrayBuffer> = new StaticArray<ArrayBuffer>(SHAPES.length);
for (let i = 0; i < SHAPES.length; i++) PATHS[i] = String.UTF8.encode(SHAPES[i].path);

/** The shape that is read on the path `[at, at+size)` as it came: query, fragment and slashes at the end do not matter. `ShapeId.Other` when it is none of ours. */
export function shapeOfPath(at: usize, size: u32): u32 {
  let n: u32 = 0;
  while (n < size && load<u8>(at + n) != 0x3f && load<u8>(at + n) != 0x23) n++;
  while (n > 1 && load<u8>(at + n - 1) == 0x2f) n--;
  for (let i = 1; i < PATHS.length; i++) {
    const path = unchecked(PATHS[i]);
    if (<u32>path.byteLength == n && memory.compare(at, changetype<usize>(path), n) == 0) return i;
  }
  return ShapeId.Other;
}
