// Which path is read as which API shape: query, fragment and slashes at the end do not matter (scheduler §2.7; case 28).
import { ShapeId, shapeOf, shapeOfPath, shapesOf, Whole } from "../index";
import { keys, read, same, utf8, view } from "./support";

function shape(path: string): u32 {
  const bytes = utf8(path);
  return shapeOfPath(changetype<usize>(bytes), bytes.length);
}

const PATHS: StaticArray<string> = [
  "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate", "/v1/embeddings", "/generate", "/v1/chat/completions/render", "/v1/completions/render",
];
const SHAPES: StaticArray<ShapeId> = [
  ShapeId.Chat, ShapeId.Completions, ShapeId.Messages, ShapeId.Responses, ShapeId.Generate, ShapeId.Embeddings, ShapeId.SglangGenerate, ShapeId.ChatRender, ShapeId.CompletionsRender,
];

describe("paths", () => {
  it("each of them", () => {
    for (let i = 0; i < PATHS.length; i++) {
      expect(shape(PATHS[i])).toBe(SHAPES[i], PATHS[i]);
      expect(shapeOf(SHAPES[i]).path).toBe(PATHS[i]);
    }
  });

  it("with a query, a fragment, slashes at the end, and all of them", () => {
    const tails: StaticArray<string> = ["?", "?beta=true", "?a=/v1/completions", "/", "//", "/?x=1", "#top", "?x#y", "///?x=/"];
    for (let i = 0; i < PATHS.length; i++) for (let t = 0; t < tails.length; t++) expect(shape(PATHS[i] + tails[t])).toBe(SHAPES[i], PATHS[i] + tails[t]);
  });

  it("S-RQ-05 the longest path counts: chat completions are not read as completions, nor what is below either", () => {
    expect(shape("/v1/chat/completions")).toBe(ShapeId.Chat);
    expect(shape("/v1/completions")).toBe(ShapeId.Completions);
    expect(shape("/v1/chat/completions/render")).toBe(ShapeId.ChatRender);
    // One parser has each path, so that which is registered first decides nothing.
    for (let i = 0; i < PATHS.length; i++) for (let k = 0; k < i; k++) expect(PATHS[i] != PATHS[k]).toBe(true);
  });

  it("S-RQ-07 a slash at the end, a query and the /render path below: the same reader", () => {
    const bodies: StaticArray<string> = ['{"model":"m","messages":[{"role":"user","content":"1234567890"}]}', '{"model":"m","prompt":"1234567890"}'];
    for (let i = 0; i < 2; i++) {
      const path = i ? "/v1/completions" : "/v1/chat/completions";
      read(utf8(bodies[i]), shape(path));
      const tokens = view.tokens;
      const key = keys();
      const others: StaticArray<string> = ["/", "?x=1", "/render", "/render/", "/render?x=1"];
      for (let k = 0; k < others.length; k++) {
        read(utf8(bodies[i]), shape(path + others[k]));
        expect(view.tokens).toBe(tokens, others[k]);
        expect(same(keys(), key)).toBe(true, others[k]);
      }
      // Rendering computes nothing: not split, and nobody holds the prompt afterwards.
      const render = shapeOf(shape(path + "/render"));
      expect(render.splits).toBe(false);
      expect(render.computes).toBe(false);
      expect(shapeOf(shape(path)).computes).toBe(true);
    }
  });

  it("every other path is none of ours", () => {
    const others: StaticArray<string> = [
      "", "/", "//", "?", "/?/v1/completions", "/v1", "/v1/", "/v1/models", "/V1/chat/completions", "/v1/chat/completion", "/v1/chat/completionss", "/v1/messages/count_tokens", "/v1/responses/resp_1", "v1/completions", "//v1/completions",
      "/v1//completions", "/x/v1/completions", "/v1/chat%2Fcompletions", "/v1/completions%3Fx", "/v1/completions;x", "/v1/completions ", "/tokenize",
    ];
    for (let i = 0; i < others.length; i++) expect(shape(others[i])).toBe(ShapeId.Other, others[i]);
  });
});

describe("parsers", () => {
  it("a shape is read where its parser is listed", () => {
    const all = shapesOf(["openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"]);
    for (let i = 0; i < SHAPES.length; i++) expect((all >> <u32>SHAPES[i]) & 1).toBe(SHAPES[i] == ShapeId.SglangGenerate ? 0 : 1, PATHS[i]);
    const one = shapesOf(["sglanghttp-parser"]);
    for (let i = 0; i < SHAPES.length; i++) expect((one >> <u32>SHAPES[i]) & 1).toBe(SHAPES[i] == ShapeId.SglangGenerate ? 1 : 0, PATHS[i]);
  });

  it("only the sidecar's five routes are split", () => {
    for (let i = 0; i < SHAPES.length; i++) expect(shapeOf(SHAPES[i]).splits).toBe(SHAPES[i] <= ShapeId.Generate, PATHS[i]);
  });
});

describe("embeddings and SGLang's generate", () => {
  it("embeddings: a text, texts, ids, lists of ids, counted like prompts", () => {
    read(utf8('{"model":"m","input":"12345678"}'), ShapeId.Embeddings);
    expect(view.tokens).toBe(2);
    read(utf8('{"model":"m","input":["1234","12345678"]}'), ShapeId.Embeddings);
    expect(view.tokens).toBe(3);
    expect(view.whole).toBe(Whole.MultiplePrompts);
    read(utf8('{"model":"m","input":[5,6,7]}'), ShapeId.Embeddings);
    expect(view.tokens).toBe(3);
    read(utf8('{"model":"m","input":[[5,6,7],[8]]}'), ShapeId.Embeddings);
    expect(view.tokens).toBe(4);
  });

  it("the same text has the same keys as a completion's prompt", () => {
    read(utf8('{"model":"m","prompt":"the same text in two shapes"}'), ShapeId.Completions);
    const a = keys();
    read(utf8('{"model":"m","text":"the same text in two shapes"}'), ShapeId.SglangGenerate);
    expect(keys()).toStrictEqual(a);
    read(utf8('{"model":"m","input":"the same text in two shapes"}'), ShapeId.Embeddings);
    expect(keys()).toStrictEqual(a);
  });

  it("SGLang: input_ids, one list or several", () => {
    read(utf8('{"input_ids":[1,2,3,4,5]}'), ShapeId.SglangGenerate);
    expect(view.tokens).toBe(5);
    read(utf8('{"input_ids":[[1,2],[3]],"sampling_params":{"n":1}}'), ShapeId.SglangGenerate);
    expect(view.tokens).toBe(3);
    expect(view.whole).toBe(Whole.MultiplePrompts);
  });
});

describe("features of generate", () => {
  const withHashes = (hashes: string): string => '{"model":"m","token_ids":[1,2,3,4,5,6,7,8],"features":{"mm_hashes":' + hashes + ',"mm_placeholders":{"image":[{"offset":1,"length":2}]}}}';

  it("are media items, one per hash, and part of the key", () => {
    read(utf8(withHashes('{"image":["h1","h2"],"audio":["h3"]}')), ShapeId.Generate);
    expect(view.mmItems).toBe(3);
    expect(view.tokens).toBe(8);
    const a = keys();
    read(utf8(withHashes('{"audio":["h3"],"image":["h1","h2"]}')), ShapeId.Generate);
    expect(keys()).toStrictEqual(a);
    read(utf8(withHashes('{"image":["h1","h9"],"audio":["h3"]}')), ShapeId.Generate);
    expect(keys()).not.toStrictEqual(a);
  });

  it("null, empty or absent: none", () => {
    read(utf8(withHashes("{}")), ShapeId.Generate);
    expect(view.mmItems).toBe(0);
    read(utf8('{"token_ids":[1],"features":null}'), ShapeId.Generate);
    expect(view.mmItems).toBe(0);
    read(utf8('{"token_ids":[1],"features":{"mm_hashes":{"image":["a"]}},"features":null}'), ShapeId.Generate);
    expect(view.mmItems).toBe(0);
  });
});
