import { describe, expect, it } from "vitest";
import type { ApiShape, BodyView } from "../../sidecar/body/types.js";
import { createPlainScanner, readBody } from "./plain-scanner.js";

function scan(text: string | Buffer, shape: ApiShape = "chat"): BodyView {
  return readBody(Buffer.isBuffer(text) ? text : Buffer.from(text), shape);
}

function spans(text: string, view: BodyView): string[] {
  const body = Buffer.from(text);
  return view.members.map((member) => `${member.parent}|${member.name}|${body.toString("utf8", member.valueStart, member.valueEnd)}|${member.kind}|${String(member.parentIndex)}`);
}

describe("plain scanner: grammar", () => {
  const valid = ['{"a":[1,-0,0.5,1e5,1E+2,-1.25e-3]}', "[]", "{}", " \t\r\n{ } ", '"\\u0041\\n\\/"', "null", "true", "false", "3", '{"a":{"b":[[],{}]}}', '"\u{1F600}é"', '"\\ud800"', '"\u007f"'];
  it.each(valid)("reads %j", (text) => {
    expect(scan(text).error).toBeNull();
    expect(() => JSON.parse(text) as unknown).not.toThrow();
  });

  const broken: [string, string][] = [
    ["", "empty"],
    [" \n", "empty"],
    ["{", "truncated"],
    ['{"a"', "truncated"],
    ['{"a":', "truncated"],
    ['{"a":1', "truncated"],
    ['{"a":1,', "truncated"],
    ['"abc', "truncated"],
    ['"abc\\', "truncated"],
    ['"abc\\u00', "truncated"],
    ["tru", "truncated"],
    ["-", "truncated"],
    ["1.", "truncated"],
    ["1e", "truncated"],
    ["[1,2", "truncated"],
    ["{]", "invalid_json"],
    ["{,}", "invalid_json"],
    ['{"a":1,}', "invalid_json"],
    ["[1,]", "invalid_json"],
    ["[1 2]", "invalid_json"],
    ["01", "invalid_json"],
    ["+1", "invalid_json"],
    [".5", "invalid_json"],
    ["1.e3", "invalid_json"],
    ["NaN", "invalid_json"],
    ["Infinity", "invalid_json"],
    ["nul!", "invalid_json"],
    ["{a:1}", "invalid_json"],
    ["{'a':1}", "invalid_json"],
    ['"\t"', "invalid_json"],
    ['"\\x41"', "invalid_json"],
    ['"\\u00g0"', "invalid_json"],
    ["{} {}", "invalid_json"],
    ["[]]", "invalid_json"],
    ["// c\n{}", "invalid_json"],
    // No ASCII where a value is due: most often another encoding.
    ["\u00a0{}", "invalid_utf8"],
    ["{}\u00a0", "invalid_json"],
    ["{}\0", "invalid_json"],
  ];
  it.each(broken)("refuses %j as %s", (text, error) => {
    expect(scan(text).error).toBe(error);
    expect(() => JSON.parse(text) as unknown).toThrow();
  });

  it.each<[string, number[], number]>([
    ["overlong slash", [0xc0, 0xaf], 1],
    ["overlong three", [0xe0, 0x80, 0xaf], 2],
    ["surrogate", [0xed, 0xa0, 0x80], 2],
    ["above the last code point", [0xf4, 0x90, 0x80, 0x80], 2],
    ["lone continuation", [0x80], 1],
    ["cut sequence before the quote", [0xe2, 0x82], 3],
    ["0xff", [0xff], 1],
  ])("refuses %s as invalid UTF-8, at the byte that cannot stand there", (_, bytes, offset) => {
    const view = scan(Buffer.from([0x22, ...bytes, 0x22]));
    expect([view.error, view.errorOffset]).toEqual(["invalid_utf8", offset]);
  });

  it("takes a UTF-8 BOM and counts it in the offsets; refuses UTF-16 and UTF-32", () => {
    const view = scan("\ufeff{\"model\":\"m\"}");
    expect([view.error, view.objectStart, view.members[0]?.valueStart]).toEqual([null, 3, 12]);
    expect(scan(Buffer.from('{"a":1}', "utf16le")).error).toBe("invalid_json");
    expect(scan(Buffer.from('{"a":1}', "utf16le").swap16()).error).toBe("invalid_json");
    expect(scan(Buffer.from('\ufeff{"a":1}', "utf16le")).error).toBe("invalid_utf8");
    expect(scan(Buffer.from([0xef, 0xbb])).error).toBe("truncated");
    expect(scan(Buffer.from("\ufeff")).error).toBe("empty");
  });

  it("reads nesting without a stack's end, and counts it when told to", () => {
    expect(scan(`${"[".repeat(200_000)}${"]".repeat(200_000)}`).error).toBeNull();
    expect(readBody(Buffer.from("[[[]]]"), "chat", { maxDepth: 2, maxMembers: 10 }).error).toBe("too_deep");
    expect(readBody(Buffer.from('{"n":1,"n":2}'), "chat", { maxDepth: 2, maxMembers: 1 }).error).toBe("too_many_members");
  });

  it("gives the same view for every cut", () => {
    const text = Buffer.from('{"mod\\u0065l":"é\u{1F600}","messages":[{"content":[{"type":"image_url","image_url":{"url":"u"}}]}],"n":2}');
    const whole = scan(text);
    for (let cut = 0; cut <= text.length; cut++) {
      const scanner = createPlainScanner("chat");
      scanner.feed(text.subarray(0, cut));
      scanner.feed(text.subarray(cut));
      expect(scanner.end()).toEqual(whole);
    }
  });
});

describe("plain scanner: members", () => {
  it("reports duplicates in order, escaped names and the three inner objects", () => {
    const text =
      '{"model":"a","x":{"model":"no"},"kv\\u005ftransfer_params":{"a":1},"vllm_xargs":{"t":1,"ec_transfer_params":2},"sampling_params":{"max_tokens":5,"extra_args":{"kv_transfer_params":null}},"bootstrap_room":9007199254740993,"extra_args":{"kv_transfer_params":1},"model":"b"}';
    expect(spans(text, scan(text))).toEqual([
      '|model|"a"|string|-1',
      '|kv_transfer_params|{"a":1}|object|-1',
      '|vllm_xargs|{"t":1,"ec_transfer_params":2}|object|-1',
      "vllm_xargs|ec_transfer_params|2|number|2",
      '|sampling_params|{"max_tokens":5,"extra_args":{"kv_transfer_params":null}}|object|-1',
      "sampling_params|max_tokens|5|number|4",
      'sampling_params|extra_args|{"kv_transfer_params":null}|object|4',
      "sampling_params.extra_args|kv_transfer_params|null|null|6",
      "|bootstrap|9007199254740993|number|-1",
      '|model|"b"|string|-1',
    ]);
  });

  it("knows no members outside an object", () => {
    const view = scan('[{"kv_transfer_params":1}]');
    expect([view.isObject, view.objectStart, view.objectEnd, view.members.length]).toEqual([false, -1, -1, 0]);
    expect(scan(" {} ").objectEnd).toBe(3);
  });

  it("takes the last stream", () => {
    expect(scan('{"stream":true,"stream":false}').stream).toBe(false);
    expect(scan('{"stream":false,"str\\u0065am":true}').stream).toBe(true);
    expect(scan('{"stream":1}').stream).toBe(false);
  });
});

describe("plain scanner: media", () => {
  const part = (json: string): string => `{"messages":[{"role":"user","content":[${json}]}]}`;
  const keys = (json: string, shape: ApiShape = "chat"): bigint[] => scan(shape === "responses" ? `{"input":[{"content":[${json}]}]}` : part(json), shape).media.map(({ key }) => key);

  it("finds the four types in order, duplicates included", () => {
    const view = scan(
      part('{"type":"text","text":"image_url"},{"type":"image_url","image_url":{"url":"a"}},{"type":"audio_url","audio_url":{"url":"b"}},{"type":"video_url","video_url":{"url":"c"}},{"type":"input_audio","input_audio":{"data":"d"}},{"type":"image_embeds"},{"type":"input_image"},{"image_url":{"url":"a"},"type":"image_url"}'),
    );
    expect(view.media.map(({ type }) => type)).toEqual(["image_url", "audio_url", "video_url", "input_audio", "image_url"]);
    expect(view.media[0]?.key).toBe(view.media[4]?.key);
    expect(new Set(view.media.map(({ key }) => key)).size).toBe(4);
  });

  it("merges equal parts whatever their white space, member order and escapes", () => {
    const [a, b] = keys('{"type":"image_url","image_url":{"url":"http://x/\\u0061","detail":"low"}},{ "image_url" : {"detail":"low","url":"http://x/a"}, "type":"im\\u0061ge_url"}');
    expect(a).toBe(b);
    const [c, d] = keys('{"type":"image_url","image_url":{"url":"u","detail":"low"}},{"type":"image_url","image_url":{"url":"u","detail":"high"}}');
    expect(c).not.toBe(d);
  });

  it("never merges inline audio and parts without a URL", () => {
    expect(keys('{"type":"input_audio","input_audio":{"data":"d"}},{"type":"image_url","image_url":null,"uuid":"x"},{"type":"image_url","image_url":{"url":""}},{"type":"image_url"}')).toEqual([0n, 0n, 0n, 0n]);
  });

  it("reads Responses input, image_url as plain text", () => {
    expect(keys('{"type":"input_image","image_url":"u"},{"type":"input_text","text":"t"}', "responses").map((key) => key !== 0n)).toEqual([true]);
    expect(scan('{"input":"image_url"}', "responses").media).toEqual([]);
  });

  it("looks at the last messages, content and type only", () => {
    expect(scan('{"messages":[{"content":[{"type":"image_url"}]}],"messages":[]}').media).toEqual([]);
    expect(scan('{"messages":[{"content":[{"type":"image_url"}],"content":"x"}]}').media).toEqual([]);
    expect(keys('{"type":"image_url","type":"text"}')).toEqual([]);
  });
});

describe("plain scanner: never split", () => {
  const rule = (json: string, shape: ApiShape = "completions"): string => scan(json, shape).neverSplit;

  it.each([
    ['{"prompt":["a","b"]}', "multiple_prompts"],
    ['{"prompt":[[1],[2]]}', "multiple_prompts"],
    ['{"prompt":["a"]}', ""],
    ['{"prompt":[[1,2]]}', ""],
    ['{"prompt":[1,2,3]}', ""],
    ['{"prompt":"a"}', ""],
    ['{"n":2}', "parallel_sampling"],
    ['{"n":1}', ""],
    ['{"n":null}', ""],
    ['{"n":"3"}', "parallel_sampling"],
    ['{"n":3.0}', "parallel_sampling"],
    ['{"n":3e0}', "parallel_sampling"],
    ['{"n":"\\u0033"}', "parallel_sampling"],
    ['{"n":3,"n":1}', ""],
    ['{"best_of":2}', "parallel_sampling"],
    ['{"sampling_params":{"n":2}}', "parallel_sampling"],
    ['{"prompt_logprobs":0}', "prompt_logprobs"],
    ['{"prompt_logprobs":null}', ""],
    ['{"sampling_params":{"prompt_logprobs":1}}', "prompt_logprobs"],
    ['{"echo":true,"logprobs":0}', "prompt_logprobs"],
    ['{"echo":true}', ""],
    ['{"echo":1,"logprobs":1}', "prompt_logprobs"],
    ['{"echo":"true","logprobs":1}', "prompt_logprobs"],
    ['{"echo":0,"logprobs":1}', ""],
    ['{"echo":"0","logprobs":1}', ""],
    ['{"background":0}', ""],
    ['{"echo":false,"logprobs":1}', ""],
    ['{"echo":true,"logprobs":null}', ""],
    ['{"prompt_embeds":"x"}', "stateful_response"],
    ['{"previous_response_id":"x"}', "stateful_response"],
    ['{"previous_response_id":null}', ""],
    ['{"conversation":{"id":"c"}}', "stateful_response"],
    ['{"background":true}', "stateful_response"],
    ['{"background":false}', ""],
    ['{"prompt":["a","b"],"n":2,"prompt_logprobs":1,"background":true}', "multiple_prompts"],
    ['{"n":2,"prompt_logprobs":1,"background":true}', "parallel_sampling"],
    ['{"prompt_logprobs":1,"background":true}', "prompt_logprobs"],
  ])("%s: %j", (json, expected) => {
    expect(rule(json)).toBe(expected);
  });

  it("reads prompt lists for completions only", () => {
    expect(rule('{"prompt":["a","b"]}', "chat")).toBe("");
  });
});
