import { describe, expect, it } from "vitest";
import { BodyEditor } from "../body/edits.js";
import { makeScanner } from "../body/make-scanner.js";
import { Pieces } from "../body/pieces.js";
import type { ApiShape } from "../body/types.js";
import type { ReadRequest } from "../exchange.js";
import { type ChunkedRequest, chunkedRequest, editForChunk } from "./chunked-request.js";

function read(text: string, shape: ApiShape = "chat"): ReadRequest {
  const scanner = makeScanner(shape);
  scanner.feed(Buffer.from(text));
  return { shape, body: new Pieces([Buffer.from(text.slice(0, 7)), Buffer.from(text.slice(7))]), view: scanner.end() };
}

const MESSAGES = '"messages":[{"role":"user","content":"Hi"}]';

function chunked(more: string, chunk = 5): ChunkedRequest | null {
  return chunkedRequest(read(`{${MESSAGES}${more === "" ? "" : `,${more}`}}`), chunk);
}

describe("chunkedRequest", () => {
  it.each([
    ["", Number.POSITIVE_INFINITY],
    ['"max_tokens":6', 6],
    ['"max_tokens":null', Number.POSITIVE_INFINITY],
    ['"max_tokens":100,"max_completion_tokens":7', 7],
    ['"max_tokens":100,"max_completion_tokens":null', 100],
    ['"max_tokens":3,"max_tokens":9', 9],
  ])("%s: a budget of %d", (more, budget) => {
    expect(chunked(more)?.budget).toBe(budget);
  });

  it.each(['"max_tokens":5', '"max_tokens":0', '"max_tokens":-1', '"max_tokens":6.5', '"max_tokens":"9"', '"min_tokens":-1', '"n":2', '"best_of":2', '"n":"1"', '"stop":"x"', '"stop":["x"]', '"tools":[{}]', '"functions":[{}]', '"response_format":{"type":"json_schema"}', '"structured_outputs":{"regex":"a"}', '"guided_choice":["a"]', '"prompt_logprobs":0', '"echo":true', '"return_token_ids":true', '"continue_final_message":true', '"add_generation_prompt":false', '"stream_options":{"continuous_usage_stats":true}'])("%s: in one piece", (more) => {
    expect(chunked(more)).toBeNull();
  });

  it.each(['"n":1', '"n":null', '"stop":null', '"stop":[]', '"stop":""', '"tools":[]', '"tools":null', '"tools":[{}],"tool_choice":"none"', '"response_format":{"type":"text"}', '"echo":false', '"continue_final_message":false', '"add_generation_prompt":true', '"min_tokens":0', '"logprobs":true'])("%s: in chunks", (more) => {
    expect(chunked(more)).not.toBeNull();
  });

  it("is for chat with messages only", () => {
    for (const shape of ["completions", "messages", "responses", "generate", "other"] as const) expect(chunkedRequest(read(`{${MESSAGES}}`, shape), 5)).toBeNull();
    for (const text of ['{"messages":[]}', '{"messages":{}}', "{}"]) expect(chunkedRequest(read(text), 5)).toBeNull();
  });

  it("reads what the client wants of the stream", () => {
    expect(chunked('"stream":true,"stream_options":{"include_usage":true},"min_tokens":7')).toMatchObject({ stream: true, includeUsage: true, least: 7, hasLeast: true });
    expect(chunked('"stream_options":null')).toMatchObject({ stream: false, includeUsage: false, least: 0, hasLeast: false });
  });
});

describe("editForChunk", () => {
  function edited(more: string, start: Parameters<typeof editForChunk>[3]): string {
    const request = read(`{${MESSAGES},${more}}`);
    const plan = chunkedRequest(request, 5);
    if (plan === null) throw new Error(more);
    const editor = new BodyEditor(request.body, request.view);
    editForChunk(editor, request.view, plan, start);
    return Buffer.concat(editor.apply()).toString();
  }

  it("C-CH-04: the first chunk is limited and not streamed, later ones go on with one turn of the assistant", () => {
    expect(edited('"stream":true,"stream_options":{},"seed":1', { made: 0, said: null, tokens: 5 })).toBe(`{${MESSAGES},"stream":false,"seed":1,"max_tokens":5,"max_completion_tokens":5}`);
    expect(edited('"max_tokens":12', { made: 10, said: [Buffer.from("a\\n"), Buffer.from("b")], tokens: 2 })).toBe(
      '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"a\\nb"}],"max_tokens":2,"max_completion_tokens":2,"stream":false,"continue_final_message":true,"add_generation_prompt":false}',
    );
  });

  it("keeps min_tokens between nothing and the chunk's limit", () => {
    for (const [made, expected] of [
      [0, 5],
      [5, 2],
      [10, 0],
    ] as const) {
      expect(edited('"min_tokens":7', { made, said: null, tokens: 5 })).toContain(`"min_tokens":${String(expected)}`);
    }
  });

  it("leaves the limits alone where the engine is asked for what it has room for", () => {
    expect(edited('"seed":1', { made: 5, said: [], tokens: null })).not.toContain("max_");
  });
});
