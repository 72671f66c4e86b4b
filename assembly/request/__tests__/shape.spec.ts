// Which path is read as which API shape: query, fragment and slashes at the end do not matter (scheduler §2.7; case 28).
import { ShapeId, shapeOf, shapeOfPath } from "../index";
import { utf8 } from "./support";

function shape(path: string): u32 {
  const bytes = utf8(path);
  return shapeOfPath(changetype<usize>(bytes), bytes.length);
}

const PATHS: StaticArray<string> = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate"];
const SHAPES: StaticArray<ShapeId> = [ShapeId.Chat, ShapeId.Completions, ShapeId.Messages, ShapeId.Responses, ShapeId.Generate];

describe("paths", () => {
  it("each of the five", () => {
    for (let i = 0; i < PATHS.length; i++) {
      expect(shape(PATHS[i])).toBe(SHAPES[i], PATHS[i]);
      expect(shapeOf(SHAPES[i]).path).toBe(PATHS[i]);
    }
  });

  it("with a query, a fragment, slashes at the end, and all of them", () => {
    const tails: StaticArray<string> = ["?", "?beta=true", "?a=/v1/completions", "/", "//", "/?x=1", "#top", "?x#y", "///?x=/"];
    for (let i = 0; i < PATHS.length; i++) for (let t = 0; t < tails.length; t++) expect(shape(PATHS[i] + tails[t])).toBe(SHAPES[i], PATHS[i] + tails[t]);
  });

  it("every other path is none of ours", () => {
    const others: StaticArray<string> = [
      "", "/", "//", "?", "/?/v1/completions", "/v1", "/v1/", "/v1/models", "/v1/embeddings", "/V1/chat/completions", "/v1/chat/completion", "/v1/chat/completionss", "/v1/messages/count_tokens", "/v1/responses/resp_1", "v1/completions", "//v1/completions",
      "/v1//completions", "/x/v1/completions", "/v1/chat%2Fcompletions", "/v1/completions%3Fx", "/v1/completions;x", "/v1/completions ", "/generate", "/tokenize",
    ];
    for (let i = 0; i < others.length; i++) expect(shape(others[i])).toBe(ShapeId.Other, others[i]);
  });
});
