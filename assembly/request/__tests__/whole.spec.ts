// What is never split between prefill and decode, whatever a decider says (DESIGN, decision 8).
import { ScanError, ShapeId, Whole } from "../index";
import { numberOf, isNumeric } from "../numbers";
import { orders, read, utf8, view } from "./support";

function whole(members: string, shape: u32 = ShapeId.Chat): Whole {
  expect(read(utf8("{" + members + "}"), shape)).toBe(ScanError.None, members);
  return view.whole;
}

/** In every shape that is read. */
function always(members: string, reason: Whole): void {
  for (let shape: u32 = 0; shape <= <u32>ShapeId.Generate; shape++) expect(whole(members, shape)).toBe(reason, members);
}

function value(text: string): f64 {
  const bytes = utf8(text);
  return numberOf(changetype<usize>(bytes), bytes.length);
}

describe("parallel sampling", () => {
  it("n or best_of above one", () => {
    const names: StaticArray<string> = ["n", "best_of"];
    for (let i = 0; i < names.length; i++) {
      const name = '"' + names[i] + '":';
      const more: StaticArray<string> = ["2", "3", "10", "1.5e1", "2.0", "200e-2", "1e400", "123456789012345678901234567890", '"2"', '" 3 "', '"\\t4\\n"', '"+5"', '"1_0"', "1.0000001"];
      for (let k = 0; k < more.length; k++) always(name + more[k], Whole.ParallelSampling);
      const one: StaticArray<string> = ["1", "1.0", "0", "-3", "10e-1", "0.1e1", "null", "1e-400", '"1"', '"x"', "true", "false", "{}", "[2]", '{"n":2}', '""'];
      for (let k = 0; k < one.length; k++) always(name + one[k], Whole.No);
      always('"sampling_params":{' + name + "2}", Whole.ParallelSampling);
      always('"sampling_params":{' + name + "1}", Whole.No);
    }
    always('"n":1,"best_of":2', Whole.ParallelSampling);
    always('"n":2,"best_of":1', Whole.ParallelSampling);
  });

  it("the last of two counts", () => {
    always('"n":2,"n":1', Whole.No);
    always('"n":1,"n":2', Whole.ParallelSampling);
    always('"n":2,"n":null', Whole.No);
    always('"n":null,"n":2', Whole.ParallelSampling);
    always('"n":2,"n":{}', Whole.No);
    always('"sampling_params":{"n":2},"sampling_params":{"x":1}', Whole.No);
    always('"sampling_params":{"n":2},"sampling_params":null', Whole.No);
    always('"sampling_params":{"n":1,"n":2}', Whole.ParallelSampling);
  });

  it("elsewhere it is somebody's data", () => {
    always('"metadata":{"n":5}', Whole.No);
    always('"vllm_xargs":{"n":5}', Whole.No);
    always('"sampling_params":{"extra_args":{"n":5}}', Whole.No);
    always('"messages":[{"n":5,"content":"n"}]', Whole.No);
    always('"N":5', Whole.No);
    always('"\\u006e":5', Whole.ParallelSampling);
  });

  it("a count that hides in many digits", () => {
    always('"n":' + "0." + "0".repeat(250) + "1", Whole.No);
    always('"n":1' + "0".repeat(400), Whole.ParallelSampling);
    always('"n":"' + " ".repeat(20) + "2" + " ".repeat(300) + '"', Whole.ParallelSampling);
  });
});

describe("log-probabilities of the prompt", () => {
  it("prompt_logprobs, zero too", () => {
    always('"prompt_logprobs":1', Whole.PromptLogprobs);
    always('"prompt_logprobs":0', Whole.PromptLogprobs);
    always('"prompt_logprobs":null', Whole.No);
    always('"prompt_logprobs":5,"prompt_logprobs":null', Whole.No);
    always('"sampling_params":{"prompt_logprobs":0}', Whole.PromptLogprobs);
    always('"sampling_params":{"prompt_logprobs":null}', Whole.No);
  });

  it("echo with logprobs", () => {
    always('"echo":true,"logprobs":1', Whole.PromptLogprobs);
    always('"logprobs":0,"echo":true', Whole.PromptLogprobs);
    always('"echo":1,"logprobs":5', Whole.PromptLogprobs);
    always('"echo":true,"logprobs":true', Whole.PromptLogprobs);
    always('"echo":true', Whole.No);
    always('"logprobs":5', Whole.No);
    always('"echo":false,"logprobs":5', Whole.No);
    always('"echo":0,"logprobs":5', Whole.No);
    always('"echo":null,"logprobs":5', Whole.No);
    always('"echo":true,"logprobs":null', Whole.No);
    always('"echo":true,"logprobs":false', Whole.No);
    always('"echo":true,"logprobs":1,"echo":false', Whole.No);
  });
});

describe("stateful requests", () => {
  it("prompt_embeds, previous_response_id, conversation, background", () => {
    always('"prompt_embeds":"AAAA"', Whole.StatefulResponse);
    always('"prompt_embeds":["AAAA"]', Whole.StatefulResponse);
    always('"prompt_embeds":null', Whole.No);
    always('"previous_response_id":"resp_1"', Whole.StatefulResponse);
    always('"previous_response_id":null', Whole.No);
    always('"conversation":"conv_1"', Whole.StatefulResponse);
    always('"conversation":{"id":"conv_1"}', Whole.StatefulResponse);
    always('"conversation":null', Whole.No);
    always('"background":true', Whole.StatefulResponse);
    always('"background":1', Whole.StatefulResponse);
    always('"background":false', Whole.No);
    always('"background":0', Whole.No);
    always('"background":null', Whole.No);
    always('"previous_response_id":"resp_1","previous_response_id":null', Whole.No);
    always('"metadata":{"previous_response_id":"resp_1"},"store":true', Whole.No);
  });
});

describe("several prompts", () => {
  it("of completions", () => {
    const c = ShapeId.Completions;
    expect(whole('"prompt":["a","b"]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":["a",""]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":["",""]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":[[1],[2]]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":[[],[]]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":["a"]', c)).toBe(Whole.No);
    expect(whole('"prompt":[[1,2]]', c)).toBe(Whole.No);
    expect(whole('"prompt":[1,2]', c)).toBe(Whole.No);
    expect(whole('"prompt":"a"', c)).toBe(Whole.No);
    expect(whole('"prompt":[]', c)).toBe(Whole.No);
    expect(whole('"prompt":null', c)).toBe(Whole.No);
    expect(whole('"prompt":["a","b"],"prompt":"a"', c)).toBe(Whole.No);
    expect(whole('"prompt":"a","prompt":["a","b"]', c)).toBe(Whole.MultiplePrompts);
  });

  it("ids among texts take no prompt away (found by the fuzz)", () => {
    const c = ShapeId.Completions;
    expect(whole('"prompt":["a","b",7]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":["a","b",7.5]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":[7,8,"a"]', c)).toBe(Whole.MultiplePrompts);
    expect(whole('"prompt":["a",7]', c)).toBe(Whole.No);
  });

  it("lists that are no prompts of their own elsewhere", () => {
    expect(whole('"prompt":["a","b"]', ShapeId.Chat)).toBe(Whole.No);
    expect(whole('"messages":[{"content":["a","b"]},{"content":"c"}]', ShapeId.Chat)).toBe(Whole.No);
    expect(whole('"token_ids":[1,2,3]', ShapeId.Generate)).toBe(Whole.No);
  });
});

describe("the order of reasons", () => {
  it("is that of the document, whatever the order of members", () => {
    const all = orders(['"prompt":["a","b"]', '"n":2', '"prompt_logprobs":1', '"background":true'], "", "");
    for (let i = 0; i < all.length; i++) {
      expect(whole(all[i], ShapeId.Completions)).toBe(Whole.MultiplePrompts, all[i]);
      expect(whole(all[i], ShapeId.Chat)).toBe(Whole.ParallelSampling, all[i]);
      expect(whole(all[i].replace('"n":2', '"n":1'), ShapeId.Chat)).toBe(Whole.PromptLogprobs, all[i]);
      expect(whole(all[i].replace('"n":2', '"n":1').replace(":1", ":null").replace('"prompt_logprobs":1', '"x":1'), ShapeId.Chat)).toBe(Whole.StatefulResponse, all[i]);
    }
  });

  it("a body that cannot be read has none", () => {
    expect(read(utf8('{"n":2,'), ShapeId.Chat)).toBe(ScanError.Truncated);
    expect(view.whole).toBe(Whole.No);
    expect(view.hasTokens).toBe(false);
    expect(view.keyCount).toBe(0);
  });
});

describe("numbers", () => {
  it("are read without a float parser", () => {
    expect(value("0")).toBe(0);
    expect(value("-0")).toBe(0);
    expect(value("7")).toBe(7);
    expect(value("-12.5")).toBe(-12.5);
    expect(value("1e3")).toBe(1000);
    expect(value("125E-2")).toBe(1.25);
    expect(value("0.001e+3")).toBe(1);
    expect(value("1e400")).toBe(Infinity);
    expect(value("-1e99999999999999999999")).toBe(-Infinity);
    expect(value("0e99999999999999999999")).toBe(0);
    expect(value("1e-99999999999999999999")).toBe(0);
    expect(value("")).toBe(0);
    expect(value("abc")).toBe(0);
    expect(value("e")).toBe(0);
    expect(value("--")).toBe(0);
  });

  it("numeric text is told from other text", () => {
    const yes: StaticArray<string> = ["1", "-1.5e+3", " 1 ", "1_000"];
    for (let i = 0; i < yes.length; i++) expect(isNumeric(changetype<usize>(utf8(yes[i])), yes[i].length)).toBe(true, yes[i]);
    const no: StaticArray<string> = ["", "x", "1x", "true", "-", "e", " ", "0x1"];
    for (let i = 0; i < no.length; i++) expect(isNumeric(changetype<usize>(utf8(no[i])), no[i].length)).toBe(false, no[i]);
  });
});
