import { describe, expect, it } from "vitest";
import { BodyEditor } from "./edits.js";
import { makeScanner } from "./make-scanner.js";
import { Pieces } from "./pieces.js";
import { type Caps, capToOneToken, setTopLevel } from "./prefill-caps.js";
import type { ApiShape } from "./types.js";

function capped(shape: ApiShape, text: string, caps?: Caps): string {
  const body = new Pieces([Buffer.from(text)]);
  const scanner = makeScanner(shape);
  scanner.feed(Buffer.from(text));
  const view = scanner.end();
  const editor = new BodyEditor(body, view);
  capToOneToken(editor, view, shape, caps);
  return Buffer.concat(editor.apply()).toString();
}

describe("capToOneToken", () => {
  it("C-NX-03: chat limits are added, stream is false, stream_options is gone", () => {
    expect(capped("chat", '{"model":"m","stream":true,"stream_options":{"include_usage":true}}')).toBe(
      '{"model":"m","stream":false,"max_tokens":1,"max_completion_tokens":1,"min_tokens":1}',
    );
    expect(capped("chat", "{}")).toBe('{"max_tokens":1,"max_completion_tokens":1,"min_tokens":1,"stream":false}');
  });

  it("C-NX-03: limits that are there are set in their place, each of several", () => {
    expect(capped("chat", '{"max_tokens":50,"max_tokens":60,"min_tokens":null,"max_completion_tokens":9007199254740993,"stream":true,"stream":true}')).toBe(
      '{"max_tokens":1,"max_tokens":1,"min_tokens":1,"max_completion_tokens":1,"stream":false,"stream":false}',
    );
  });

  it("C-NX-08: messages and completions are capped as chat", () => {
    for (const shape of ["messages", "completions"] as const) expect(capped(shape, '{"max_tokens":5,"stream":false}')).toBe('{"max_tokens":1,"stream":false,"max_completion_tokens":1,"min_tokens":1}');
  });

  it("C-NX-07: responses have max_output_tokens only, and are not stored", () => {
    expect(capped("responses", '{"input":"x","stream":true}')).toBe('{"input":"x","stream":false,"max_output_tokens":1,"store":false}');
    expect(capped("responses", '{"max_output_tokens":64,"store":true}')).toBe('{"max_output_tokens":1,"store":false,"stream":false}');
  });

  it("C-NX-09: generate is capped inside sampling_params", () => {
    expect(capped("generate", '{"sampling_params":{"max_tokens":32,"min_tokens":2,"temperature":0.0},"stream":false}')).toBe(
      '{"sampling_params":{"max_tokens":1,"min_tokens":1,"temperature":0.0},"stream":false}',
    );
    expect(capped("generate", '{"sampling_params":{},"stream":false}')).toBe('{"sampling_params":{"max_tokens":1,"min_tokens":1},"stream":false}');
    expect(capped("generate", '{"stream":false}')).toBe('{"stream":false,"sampling_params":{"max_tokens":1,"min_tokens":1}}');
    expect(capped("generate", '{"sampling_params":null,"stream":false}')).toBe('{"sampling_params":{"max_tokens":1,"min_tokens":1},"stream":false}');
  });

  it.each([
    ["chat", "{}", '{"max_tokens":1,"stream":false}'],
    ["chat", '{"max_completion_tokens":7,"min_tokens":3}', '{"max_completion_tokens":1,"min_tokens":1,"max_tokens":1,"stream":false}'],
    ["completions", '{"max_tokens":7,"stream_options":{}}', '{"max_tokens":1,"stream":false}'],
    ["messages", '{"max_tokens":7,"stream":true}', '{"max_tokens":1,"stream":false}'],
    ["responses", "{}", '{"max_output_tokens":1,"store":false,"stream":false}'],
    ["generate", '{"sampling_params":{"temperature":0}}', '{"sampling_params":{"temperature":0,"max_tokens":1},"stream":false}'],
    ["generate", '{"sampling_params":{"min_tokens":5,"max_tokens":9}}', '{"sampling_params":{"min_tokens":1,"max_tokens":1},"stream":false}'],
    ["generate", "{}", '{"sampling_params":{"max_tokens":1},"stream":false}'],
    ["generate", '{"sampling_params":null}', '{"sampling_params":{"max_tokens":1},"stream":false}'],
  ] as const)("C-MC-03 C-OF-02: of %s %s the first limit, and those that the client sent", (shape, text, expected) => {
    expect(capped(shape, text, "first")).toBe(expected);
  });

  it("sets a member in every place, or adds it", () => {
    for (const [text, expected] of [
      ['{"cache_hit_threshold":0.5,"a":1,"cache_hit_threshold":"x"}', '{"cache_hit_threshold":0,"a":1,"cache_hit_threshold":0}'],
      ['{"a":{"cache_hit_threshold":0.5}}', '{"a":{"cache_hit_threshold":0.5},"cache_hit_threshold":0}'],
    ] as const) {
      const scanner = makeScanner("chat");
      scanner.feed(Buffer.from(text));
      const view = scanner.end();
      const editor = new BodyEditor(new Pieces([Buffer.from(text)]), view);
      setTopLevel(editor, view, "cache_hit_threshold", "0");
      expect(Buffer.concat(editor.apply()).toString()).toBe(expected);
    }
  });

  it("C-NX-09: each of several sampling_params is capped by itself", () => {
    expect(capped("generate", '{"sampling_params":{"max_tokens":3},"sampling_params":{"min_tokens":2},"stream":false}')).toBe(
      '{"sampling_params":{"max_tokens":1,"min_tokens":1},"sampling_params":{"min_tokens":1,"max_tokens":1},"stream":false}',
    );
  });
});
