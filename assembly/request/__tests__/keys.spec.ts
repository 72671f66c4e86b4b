// From a body to tokens and prefix keys (scheduler §4.1, §4.2; DESIGN, decision 1). Blocks are four tokens here, sixteen bytes of text.
import { ScanError, ShapeId } from "../index";
import { firstBadCut, joined, keys, keysOf, orders, read, repeated, same, scanner, shared, useBlocks, utf8, view } from "./support";

const CHAT = ShapeId.Chat;
const COMPLETIONS = ShapeId.Completions;
const MESSAGES = ShapeId.Messages;
const RESPONSES = ShapeId.Responses;
const GENERATE = ShapeId.Generate;

/** Tokens of a body that is read; -1: none could be counted. */
function tokensOf(body: string, shape: u32): i32 {
  expect(read(utf8(body), shape)).toBe(ScanError.None, body);
  return view.hasTokens ? <i32>view.tokens : -1;
}

function chat(content: string): string {
  return '{"messages":[{"role":"user","content":' + content + "}]}";
}

function counts(body: string, shape: u32, bytes: i32): void {
  expect(tokensOf(body, shape)).toBe((bytes + 3) / 4, body);
}

function equal(a: string, b: string, shape: u32): void {
  const first = keysOf(a, shape);
  const tokens = view.tokens;
  const second = keysOf(b, shape);
  expect(first.length).toBeGreaterThan(0, a);
  expect(same(first, second)).toBe(true, a + "  ==  " + b);
  expect(view.tokens).toBe(tokens, a + "  ==  " + b);
}

/** The keys differ from the first on. */
function differ(a: string, b: string, shape: u32): void {
  const first = keysOf(a, shape);
  const second = keysOf(b, shape);
  expect(first.length).toBeGreaterThan(0, a);
  expect(second.length).toBeGreaterThan(0, b);
  expect(shared(first, second)).toBe(0, a + "  !=  " + b);
}

/** A text of `n` bytes that does not repeat itself. */
function text(n: i32, from: i32 = 0): string {
  let out = "";
  for (let i = from; out.length < n; i++) out += "w" + i.toString() + " ";
  return out.substring(0, n);
}

const LONG = text(100);
const BASE = '{"model":"m","messages":[{"role":"user","content":"' + LONG + '"}]}';

/** A message behind four blocks of another one, and in front of a third. */
function conversation(message: string): string {
  return '{"messages":[{"role":"system","content":"' + text(58) + '"},' + message + ',{"role":"user","content":"' + text(100, 50) + '"}]}';
}

/** Both messages share the keys of what stands in front of them, and no more. */
function departs(a: string, b: string): void {
  const x = keysOf(conversation(a), CHAT);
  const y = keysOf(conversation(b), CHAT);
  expect(shared(x, y)).toBe(4, a + "  !=  " + b);
}

const BODY = text(80, 20);
const PLAIN = '{"role":"user","content":"' + BODY + '"}';
const USER = '"messages":[{"role":"user","content":"' + text(60, 200) + '"}]}';

/** Messages of all kinds and lengths. */
function message(i: i32): string {
  const role = i == 0 ? "system" : i & 1 ? "user" : "assistant";
  const n = ((i * 7919) % 97) + 1;
  const kind = (i * 31) % 7;
  if (kind == 0) return '{"role":"' + role + '","content":[{"type":"text","text":"' + text(n, i * 100) + '"},{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhIAAgAA' + i.toString() + '"}},{"type":"text","text":"tail"}]}';
  if (kind == 1) return '{"content":null,"tool_calls":[{"id":"c' + i.toString() + '","function":{"name":"f","arguments":"{\\"a\\":' + i.toString() + '}"}}],"role":"assistant"}';
  if (kind == 2) return '{"role":"tool","tool_call_id":"c' + i.toString() + '","content":"' + text(n, i * 100) + '"}';
  if (kind == 3) return '{"role":"' + role + '","content":[{"type":"file","file":{"file_id":"f' + i.toString() + '"}},{"type":"text","text":"' + text(n, i * 100) + '"}]}';
  return '{"role":"' + role + '","content":"' + text(n, i * 100) + '"}';
}

/** The last body's model. */
function model(): string {
  return String.UTF8.decodeUnsafe(scanner.reader.modelAt, scanner.reader.modelSize);
}

beforeEach(() => {
  useBlocks(4, 1024);
});

describe("tokens of chat completions", () => {
  it("are role and content, four bytes each, rounded up", () => {
    for (let n = 0; n < 70; n++) counts(chat('"' + "x".repeat(n) + '"'), CHAT, 4 + n);
  });

  it("of several messages are those of one text", () => {
    counts('{"messages":[{"role":"system","content":"abc"},{"role":"user","content":"d"},{"role":"assistant","content":"ef"}]}', CHAT, 6 + 3 + 4 + 1 + 9 + 2);
  });

  it("of text parts have no separators", () => {
    counts(chat('[{"type":"text","text":"abc"},{"type":"text","text":"de"}]'), CHAT, 9);
    counts(chat('["abc","de"]'), CHAT, 9);
    counts(chat("[]"), CHAT, 4);
  });

  it("of decoded text", () => {
    counts(chat('"\\u0041\\n\\""'), CHAT, 4 + 3);
    counts(chat('"\\u00e9"'), CHAT, 4 + 2);
    counts(chat('"é"'), CHAT, 4 + 2);
    counts(chat('"\\u20ac"'), CHAT, 4 + 3);
    counts(chat('"\\ud83d\\ude00"'), CHAT, 4 + 4);
    counts(chat('"\\u0000"'), CHAT, 4 + 1);
  });

  it("null, missing and empty content", () => {
    counts(chat("null"), CHAT, 4);
    counts('{"messages":[{"role":"user"}]}', CHAT, 4);
    counts('{"messages":[]}', CHAT, 0);
    counts('{"messages":null}', CHAT, 0);
    counts("{}", CHAT, 0);
  });

  it("tools count as their compact JSON, white space in them does not", () => {
    counts('{"tools":[{"a":1}],"messages":[]}', CHAT, 9);
    counts('{"tools" : [ { "a" : 1 } ] , "messages":[]}', CHAT, 9);
    const compact = '[{"type":"function","function":{"name":"f","parameters":{"x":[1,22,-3.5e6,true,false,null,{},[]],"y":"a\\nb"}}}]';
    const wide = '[ {"type" : "function",\n"function":{ "name":"f" , "parameters": {"x":[ 1 , 22 , -3.5e6,true , false,null,{ },[ ]], "y":"a\\nb" } } } ]';
    counts('{"tools":' + compact + ',"messages":[]}', CHAT, compact.length);
    counts('{"tools":' + wide + ',"messages":[]}', CHAT, compact.length);
    counts('{"tools":[],"messages":[{"role":"user","content":"a"}]}', CHAT, 5);
    counts('{"tools":null,"messages":[{"role":"user","content":"a"}]}', CHAT, 5);
  });

  it("tool calls count", () => {
    const plain = tokensOf('{"messages":[{"role":"assistant","content":null}]}', CHAT);
    expect(tokensOf('{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"tide","arguments":"{}"}}]}]}', CHAT)).toBeGreaterThan(plain + 8);
  });

  it("of a body with its members in any order, in any cut", () => {
    const all = orders(['"model":"m"', '"messages":[{"role":"user","content":"abcdefghij"}]', '"tools":[{"a":1}]', '"stream":true'], "{", "}");
    for (let i = 0; i < all.length; i++) counts(all[i], CHAT, 9 + 4 + 10);
    expect(firstBadCut(utf8(all[7]), CHAT)).toBe(-1);
  });
});

describe("keys of chat completions", () => {
  it("S-PX-26 the same text twice: the same tokens, the same keys", () => {
    equal(BASE, BASE, CHAT);
    // (4 + 100 bytes) / 16 = 6 whole blocks and a partial one.
    expect(keysOf(BASE, CHAT).length).toBe(7);
    expect(view.span(0).partial).toBe(1);
  });

  it("S-PX-16 the trailing 2 of 10 tokens, block 4: 3 blocks", () => {
    expect(keysOf(chat('"' + text(36) + '"'), CHAT).length).toBe(3);
    expect(view.tokens).toBe(10);
    expect(keysOf(chat('"' + text(12) + '"'), CHAT).length).toBe(1);
    expect(view.span(0).partial).toBe(0);
    expect(keysOf(chat('"' + text(13) + '"'), CHAT).length).toBe(2);
    expect(view.span(0).partial).toBe(1);
  });

  it("do not depend on white space, on escapes or on the order of members, of the body, of messages or of parts", () => {
    equal(BASE, '{ "messages" : [ { "content" : "' + LONG + '" , "role" : "user" } ] , "model" : "m" }', CHAT);
    equal(chat('"Aé/😀' + LONG + '"'), chat('"\\u0041\\u00E9\\/\\ud83d\\ude00' + LONG + '"'), CHAT);
    const bodies = orders(['"model":"m"', '"cache_salt":"s"', '"messages":[{"role":"user","content":"' + LONG + '"}]', '"tools":[{"b":1,"a":{"d":2,"c":3}}]', '"lora_path":"l"'], "{", "}");
    for (let i = 1; i < bodies.length; i++) equal(bodies[0], bodies[i], CHAT);
    const messages = orders(['"role":"assistant"', '"content":"' + LONG + '"', '"name":"n"', '"tool_calls":[{"id":"1","f":{"a":1,"b":2}}]', '"reasoning_content":"r"'], '{"messages":[{"role":"user","content":"hello"},{', "}]}");
    for (let i = 1; i < messages.length; i++) equal(messages[0], messages[i], CHAT);
    const parts = orders(['"type":"text"', '"text":"' + LONG + '"', '"x":1'], '{"messages":[{"role":"user","content":[{', "}]}]}");
    for (let i = 1; i < parts.length; i++) equal(parts[0], parts[i], CHAT);
  });

  it("of one text as a string and as text parts are the same", () => {
    equal(chat('"' + LONG + '"'), chat('[{"type":"text","text":"' + LONG.substring(0, 40) + '"},{"text":"' + LONG.substring(40) + '","type":"text"}]'), CHAT);
  });

  it("the tools' own members in any order, and numbers as they are written", () => {
    equal('{"tools":[{"a":1,"b":[1,2]}],' + BASE.substring(1), '{"tools":[ { "b" : [1,2], "a":1} ],' + BASE.substring(1), CHAT);
    differ('{"tools":[{"a":[1,2]}],' + BASE.substring(1), '{"tools":[{"a":[2,1]}],' + BASE.substring(1), CHAT);
    differ('{"tools":[{"a":1},{"b":2}],' + BASE.substring(1), '{"tools":[{"b":2},{"a":1}],' + BASE.substring(1), CHAT);
    differ('{"tools":[{"a":"1"}],' + BASE.substring(1), '{"tools":[{"a":1}],' + BASE.substring(1), CHAT);
    differ('{"tools":[{"a":null}],' + BASE.substring(1), '{"tools":[{"a":false}],' + BASE.substring(1), CHAT);
    differ('{"tools":[{"a":{"b":1},"c":2}],' + BASE.substring(1), '{"tools":[{"a":{"b":1,"c":2}}],' + BASE.substring(1), CHAT);
    differ('{"tools":[["a"],["b"]],' + BASE.substring(1), '{"tools":[["a","b"]],' + BASE.substring(1), CHAT);
    differ('{"tools":[{"a":"b"}],' + BASE.substring(1), '{"tools":[{"b":"a"}],' + BASE.substring(1), CHAT);
    differ('{"tools":[["a"]],' + BASE.substring(1), '{"tools":["a"],' + BASE.substring(1), CHAT);
    differ('{"tools":[{}],' + BASE.substring(1), '{"tools":[[]],' + BASE.substring(1), CHAT);
    equal('{"tools":[],' + BASE.substring(1), BASE, CHAT);
    equal('{"tools":null,' + BASE.substring(1), BASE, CHAT);
  });

  it("null, true, false, an empty list and an empty object in them are five things (found by the fuzz)", () => {
    const values = ["null", "true", "false", "[]", "{}", '""', "0"];
    for (let i = 0; i < values.length; i++) {
      for (let j = 0; j < i; j++) {
        const a = keysOf('{"tools":[{"a":' + values[i] + '}],"messages":[{"role":"user","content":"x"}]}', CHAT);
        const b = keysOf('{"tools":[{"a":' + values[j] + '}],"messages":[{"role":"user","content":"x"}]}', CHAT);
        expect(same(a, b)).toBe(false, values[i] + " " + values[j]);
      }
    }
  });

  it("deeply nested tools are told apart", () => {
    for (let depth = 1; depth < 60; depth++) {
      const open = '{"a":['.repeat(depth);
      const close = "]}".repeat(depth);
      differ('{"tools":[' + open + "1" + close + "]," + BASE.substring(1), '{"tools":[' + open + "2" + close + "]," + BASE.substring(1), CHAT);
      differ('{"tools":[' + open + '{"x":1}' + close + "]," + BASE.substring(1), '{"tools":[' + open + '{"y":1}' + close + "]," + BASE.substring(1), CHAT);
      differ('{"tools":[' + open + "1" + close + "]," + BASE.substring(1), '{"tools":[' + '{"a":['.repeat(depth + 1) + "1" + "]}".repeat(depth + 1) + "]," + BASE.substring(1), CHAT);
    }
  });

  it("S-PX-17 another model: other keys", () => {
    differ(BASE, BASE.replace('"m"', '"n"'), CHAT);
    differ(BASE, BASE.replace('"model":"m",', ""), CHAT);
    differ(BASE, BASE.replace('"m"', "null"), CHAT);
    // What no longer fits the kept bytes takes part as well.
    const name = text(300);
    differ('{"model":"' + name + 'a",' + BASE.substring(13), '{"model":"' + name + 'b",' + BASE.substring(13), CHAT);
  });

  it("S-PX-18 another cache salt, or none: other keys", () => {
    differ(BASE, '{"cache_salt":"a",' + BASE.substring(1), CHAT);
    differ('{"cache_salt":"b",' + BASE.substring(1), '{"cache_salt":"a",' + BASE.substring(1), CHAT);
    equal(BASE, '{"cache_salt":null,' + BASE.substring(1), CHAT);
    // A salt is not a model's end, nor a template.
    differ('{"model":"ab","cache_salt":"c","messages":' + '[{"role":"user","content":"x"}]}', '{"model":"a","cache_salt":"bc","messages":[{"role":"user","content":"x"}]}', CHAT);
    differ('{"chat_template":"a",' + BASE.substring(1), '{"cache_salt":"a",' + BASE.substring(1), CHAT);
  });

  it("S-PX-30 tools stand in front: other tools, another first block, and their tokens count with it", () => {
    const tools = '{"tools":[{"type":"function","function":{"name":"tide"}}],';
    differ(BASE, tools + BASE.substring(1), CHAT);
    differ(tools.replace("tide", "wind") + BASE.substring(1), tools + BASE.substring(1), CHAT);
    const system = '"messages":[{"role":"system","content":"' + LONG + '"}]}';
    differ(tools.replace("tide", "wind") + system, tools + system, CHAT);
    keysOf(tools + system, CHAT);
    expect(view.span(0).lead).toBe(12); // 48 bytes
    expect(view.tokensOf(0, 1)).toBe(12 + 4);
    expect(view.tokensOf(0, 0)).toBe(0);
    expect(view.tokensOf(0, view.span(0).count)).toBe(view.tokens);
  });

  it("everything else that changes the prompt changes the keys", () => {
    const others: StaticArray<string> = ['"lora_path":"a"', '"chat_template":"a"', '"chat_template_kwargs":{"thinking":true}', '"documents":[{"title":"a"}]', '"mm_processor_kwargs":{"max_pixels":3}', '"truncate_prompt_tokens":1', '"truncation_side":"left"'];
    for (let i = 0; i < others.length; i++) {
      differ(BASE, "{" + others[i] + "," + BASE.substring(1), CHAT);
      for (let k = 0; k < i; k++) differ("{" + others[k] + "," + BASE.substring(1), "{" + others[i] + "," + BASE.substring(1), CHAT);
    }
    differ('{"chat_template_kwargs":{"thinking":false},' + BASE.substring(1), '{"chat_template_kwargs":{"thinking":true},' + BASE.substring(1), CHAT);
    differ('{"lora_path":"a","chat_template":"b",' + BASE.substring(1), '{"lora_path":"b","chat_template":"a",' + BASE.substring(1), CHAT);
  });

  it("what does not change the prompt does not", () => {
    equal(BASE, '{"temperature":0.3,"max_tokens":7,"stream":true,"seed":9007199254740993,"metadata":{"messages":[{"role":"user","content":"x"}],"model":"z"},"kv_transfer_params":{"a":1},' + BASE.substring(1), CHAT);
  });

  it("another secret: other keys", () => {
    const mine = keysOf(BASE, CHAT);
    scanner.start();
    scanner.reader.start(CHAT, 99, 4, 1024, false);
    const body = utf8(BASE);
    scanner.feed(changetype<usize>(body), body.length);
    view.take(scanner);
    expect(shared(mine, keys())).toBe(0);
  });
});

describe("keys of a message", () => {
  it("another role", () => {
    departs(PLAIN, '{"role":"tool","content":"' + BODY + '"}');
    departs(PLAIN, '{"role":"User","content":"' + BODY + '"}');
    departs(PLAIN, '{"content":"' + BODY + '"}');
    departs('{"role":"user","content":[{"type":"text","text":"' + BODY + '"},{"type":"file","file":{"id":1}}]}', '{"role":"tool","content":[{"type":"text","text":"' + BODY + '"},{"type":"file","file":{"id":1}}]}');
    departs('{"role":"user","content":[{"type":"text","text":"' + BODY + '"},{"type":"image_url","image_url":{"url":"http://a"}}]}', '{"role":"tool","content":[{"type":"text","text":"' + BODY + '"},{"type":"image_url","image_url":{"url":"http://a"}}]}');
  });

  it("another name, tool_call_id, tool_calls, function_call, reasoning", () => {
    const members: StaticArray<string> = ['"name":"a"', '"tool_call_id":"a"', '"tool_calls":[{"id":"a"}]', '"function_call":{"name":"a"}', '"reasoning_content":"a"', '"reasoning":"a"'];
    for (let i = 0; i < members.length; i++) {
      const with_ = PLAIN.replace("{", "{" + members[i] + ",");
      departs(PLAIN, with_);
      departs(with_, with_.replace('"a"', '"b"'));
      // In front of the content or behind it: the same message.
      const behind = PLAIN.substring(0, PLAIN.length - 1) + "," + members[i] + "}";
      expect(same(keysOf(conversation(with_), CHAT), keysOf(conversation(behind), CHAT))).toBe(true, members[i]);
    }
    departs(PLAIN.replace("{", '{"name":"a",'), PLAIN.replace("{", '{"tool_call_id":"a",'));
  });

  it("another unknown part, whatever its type is called", () => {
    const types: StaticArray<string> = ["file", "refusal", "tool_use", "image", "input_image", "input_file", "document", "text", "tools", "data", "thinking", "bootstrap_x", ""];
    for (let i = 0; i < types.length; i++) {
      const part = '{"role":"user","content":[{"type":"' + types[i] + '","x":{"id":"a"}}]}';
      departs(part, part.replace('"a"', '"b"'));
      departs(part, PLAIN);
    }
    departs('{"role":"user","content":[{"x":"a"}]}', '{"role":"user","content":[{"x":"b"}]}');
    departs('{"role":"user","content":[{"type":"file","x":1},{"type":"file","x":2}]}', '{"role":"user","content":[{"type":"file","x":2},{"type":"file","x":1}]}');
  });

  it("the order of messages", () => {
    departs(PLAIN + ',{"role":"assistant","content":"' + text(40, 70) + '"}', '{"role":"assistant","content":"' + text(40, 70) + '"},' + PLAIN);
  });

  it("where one message ends and the next begins", () => {
    departs('{"role":"user","content":"ab"},{"role":"user","content":"c"}', '{"role":"user","content":"a"},{"role":"user","content":"bc"}');
    departs('{"role":"user","content":"abc"}', '{"role":"user","content":"ab"},{"role":"user","content":"c"}');
  });

  it("null, empty and absent side members are one", () => {
    const a = keysOf(conversation(PLAIN), CHAT);
    const others: StaticArray<string> = ['"tool_calls":[]', '"tool_calls":null', '"name":null', '"function_call":null'];
    for (let i = 0; i < others.length; i++) expect(same(a, keysOf(conversation(PLAIN.replace("{", "{" + others[i] + ",")), CHAT))).toBe(true, others[i]);
  });
});

describe("prefixes", () => {
  it("a longer conversation has all keys of whole blocks of the shorter one", () => {
    for (let block = 1; block <= 9; block += 4) {
      useBlocks(block, 4096);
      let messages = "";
      let before: StaticArray<u64> = [];
      let whole = 0;
      for (let i = 0; i < 40; i++) {
        messages += (i ? "," : "") + message(i);
        const now = keysOf('{"model":"m","tools":[{"name":"f"}],"messages":[' + messages + "]}", CHAT);
        expect(shared(before, now)).toBeGreaterThanOrEqual(whole, i.toString());
        before = now;
        whole = now.length - <i32>view.span(0).partial;
        expect(<i32>view.span(0).tokens).toBeGreaterThanOrEqual(<i32>view.span(0).lead + (whole - 1) * block);
      }
    }
  });

  it("and nothing of one that differs in an early message", () => {
    let a = "";
    let b = "";
    for (let i = 0; i < 12; i++) {
      a += (i ? "," : "") + message(i);
      b += (i ? "," : "") + message(i == 3 ? 100 : i);
    }
    const x = keysOf('{"messages":[' + a + "]}", CHAT);
    const y = keysOf('{"messages":[' + b + "]}", CHAT);
    const three = keysOf('{"messages":[' + message(0) + "," + message(1) + "," + message(2) + "]}", CHAT);
    const common = shared(x, y);
    expect(common).toBeLessThanOrEqual(three.length);
    expect(common).toBeGreaterThanOrEqual(three.length - 1);
    for (let i = common; i < min(x.length, y.length); i++) expect(x[i] == y[i]).toBe(false);
  });

  it("a system text that conversations share is shared to its last whole block", () => {
    for (let n = 0; n < 80; n += 3) {
      const system = '{"messages":[{"role":"system","content":"' + text(n) + '"},';
      const a = keysOf(system + '{"role":"user","content":"' + text(60, 300) + '"}]}', CHAT);
      const b = keysOf(system + '{"role":"user","content":"' + text(60, 600) + '"}]}', CHAT);
      expect(shared(a, b)).toBeGreaterThanOrEqual((6 + n) / 16, n.toString());
      expect(shared(a, b)).toBeLessThanOrEqual((6 + n + 2) / 16 + 1, n.toString());
    }
  });
});

describe("the last of two wins", () => {
  it("model, cache_salt, tools, messages", () => {
    const base = '"messages":[{"role":"user","content":"' + text(50) + '"}]}';
    equal('{"model":"x","model":"m",' + base, '{"model":"m",' + base, CHAT);
    equal('{"model":"x","model":null,' + base, "{" + base, CHAT);
    equal('{"model":"x","model":{"model":"y"},' + base, "{" + base, CHAT);
    equal('{"cache_salt":"x","cache_salt":"m",' + base, '{"cache_salt":"m",' + base, CHAT);
    equal('{"cache_salt":"x","cache_salt":null,' + base, "{" + base, CHAT);
    equal('{"tools":[{"a":1}],"tools":[{"b":22}],' + base, '{"tools":[{"b":22}],' + base, CHAT);
    equal('{"tools":[{"a":1}],"tools":null,' + base, "{" + base, CHAT);
    equal("{" + base, '{"messages":[{"role":"system","content":"' + text(90, 7) + '"},{"role":"user","content":[{"type":"file","x":1},{"type":"image_url","image_url":{"url":"u"}}]}],' + base, CHAT);
    expect(view.mmItems).toBe(0);
    counts("{" + base.replace("]}", '],"messages":null}'), CHAT, 0);
    counts("{" + base.replace("]}", '],"messages":[]}'), CHAT, 0);
  });

  it("role, content, tool_calls of a message", () => {
    const one = '{"messages":[{"role":"user","content":"first"},{"role":"assistant","content":"' + text(50) + '"}]}';
    equal(one.replace('"role":"assistant"', '"role":"tool","role":"assistant"'), one, CHAT);
    equal(one.replace('"content":"w0', '"content":"' + text(77, 9) + '","content":"w0'), one, CHAT);
    equal(one, one.replace('"content":"w0', '"content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"x","y":2},"z"],"content":"w0'), CHAT);
    expect(view.mmItems).toBe(0);
    equal(one.replace('"role":"assistant"', '"role":"assistant","tool_calls":[1,2],"tool_calls":null'), one, CHAT);
    counts(one.replace('"}]}', '","content":null}]}'), CHAT, 4 + 5 + 9);
  });

  it("type and text of a part", () => {
    const one = '{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"' + text(50) + '"}]}]}';
    equal(one.replace('"text":"w0', '"text":"' + text(44, 9) + '","text":"w0'), one, CHAT);
    const image = '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a"}}]}]}';
    read(utf8(image.replace('"type":', '"type":"text","type":')), CHAT);
    expect(view.mmItems).toBe(1);
    read(utf8(image.replace('"type":"image_url"', '"type":"image_url","type":"x"')), CHAT);
    expect(view.mmItems).toBe(0);
  });

  it("prompt, token_ids, system, instructions, input", () => {
    equal('{"prompt":["a","b"],"prompt":"' + text(40) + '"}', '{"prompt":"' + text(40) + '"}', COMPLETIONS);
    expect(view.whole).toBe(0);
    equal('{"prompt":{"x":1},"prompt":"' + text(40) + '"}', '{"prompt":"' + text(40) + '"}', COMPLETIONS);
    expect(tokensOf('{"prompt":"' + text(40) + '","prompt":{"x":1}}', COMPLETIONS)).toBe(-1);
    equal('{"token_ids":["x"],"token_ids":[1,2,3,4,5]}', '{"token_ids":[1,2,3,4,5]}', GENERATE);
    equal('{"system":"' + text(99, 4) + '","system":"' + text(40) + '","messages":[]}', '{"system":"' + text(40) + '","messages":[]}', MESSAGES);
    equal('{"system":"x","system":null,"messages":[{"role":"user","content":"abc"}]}', '{"messages":[{"role":"user","content":"abc"}]}', MESSAGES);
    equal('{"instructions":"x","input":"y","instructions":"' + text(40) + '","input":"z"}', '{"instructions":"' + text(40) + '","input":"z"}', RESPONSES);
  });

  it("duplicates of top-level members are seen", () => {
    read(utf8('{"model":"a","messages":[{"role":"a","role":"b"}],"n":1}'), CHAT);
    expect(view.duplicates).toBe(false);
    const twice: StaticArray<string> = ['"model":1', '"messages":[]', '"tools":[]', '"n":null', '"prompt_logprobs":0', '"cache_salt":"a"', '"kv_transfer_params":{}', '"stream":true', '"max_tokens":2'];
    for (let i = 0; i < twice.length; i++) {
      read(utf8("{" + twice[i] + ',"x":{},' + twice[i] + "}"), CHAT);
      expect(view.duplicates).toBe(true, twice[i]);
    }
    read(utf8('{"bootstrap_host":1,"bootstrap_port":2,"metadata":{"model":1},"model":1}'), CHAT);
    expect(view.duplicates).toBe(false, "two names that start alike");
  });
});

describe("cache_control", () => {
  it("moves from turn to turn and changes no key and no token, wherever it stands", () => {
    const mark = '"cache_control":{"type":"ephemeral","ttl":[1,{"a":2}]}';
    const part = '{"messages":[{"role":"user","content":[{"type":"text","text":"' + text(40) + '"},{"type":"tool_result","tool_use_id":"t","content":"x"}]}],"tools":[{"name":"t","input_schema":{"a":1}}],"system":[{"type":"text","text":"sys"}]}';
    const places: StaticArray<string> = ['"type":"text","text":"w0', '"type":"tool_result"', '"name":"t"', '"input_schema":{"a":1}', '"type":"text","text":"sys"', '"role":"user"'];
    for (let i = 0; i < places.length; i++) {
      equal(part, part.replace(places[i], mark + "," + places[i]), MESSAGES);
      equal(part, part.replace(places[i], '"cache\\u005fcontrol":null,' + places[i]), MESSAGES);
    }
    equal(part, part.replace('"input_schema":{"a":1}', '"input_schema":{"a":1},' + mark), MESSAGES);
    equal(part, part.replace('"content":"x"', '"content":"x",' + mark), MESSAGES);
  });
});

describe("completions", () => {
  it("a string", () => {
    for (let n = 0; n < 40; n++) counts('{"prompt":"' + "x".repeat(n) + '"}', COMPLETIONS, n);
    expect(keysOf('{"prompt":"' + text(33) + '"}', COMPLETIONS).length).toBe(3);
    expect(view.spanCount).toBe(1);
  });

  it("to the last character, where it is a NUL or half a pair too", () => {
    differ('{"prompt":"a"}', '{"prompt":"a\\u0000"}', COMPLETIONS);
    differ('{"prompt":"a\\u0000"}', '{"prompt":"a\\u0000\\u0000"}', COMPLETIONS);
    differ('{"prompt":"\\ud800x"}', '{"prompt":"x\\ud800"}', COMPLETIONS);
    differ('{"prompt":"\\ud800"}', '{"prompt":"\\udc00"}', COMPLETIONS);
    differ('{"prompt":"\\ud83d\\ude00"}', '{"prompt":"\\ude00\\ud83d"}', COMPLETIONS);
  });

  it("S-PX-15 two prompts are hashed apart, and their tokens are summed", () => {
    const a = keysOf('{"prompt":"' + text(40) + '"}', COMPLETIONS);
    const b = keysOf('{"prompt":"' + text(70, 500) + '"}', COMPLETIONS);
    expect(tokensOf('{"prompt":["' + text(40) + '","' + text(70, 500) + '"]}', COMPLETIONS)).toBe(10 + 18);
    expect(view.spanCount).toBe(2);
    expect(same(keys(0), a)).toBe(true);
    expect(same(keys(1), b)).toBe(true);
    expect(view.span(1).tokens).toBe(18);
    expect(view.tokensOf(1, 1)).toBe(4);
    expect(view.tokensOf(1, view.span(1).count)).toBe(18);
    // The same prompt twice has the same keys twice.
    read(utf8('{"prompt":["' + text(40) + '","' + text(40) + '"]}'), COMPLETIONS);
    expect(same(keys(0), keys(1))).toBe(true);
  });

  it("S-PX-19 an empty prompt among prompts is skipped", () => {
    expect(tokensOf('{"prompt":["","' + text(40) + '","","' + text(20, 90) + '",""]}', COMPLETIONS)).toBe(15);
    expect(view.spanCount).toBe(2);
    expect(same(keys(0), keysOf('{"prompt":"' + text(40) + '"}', COMPLETIONS))).toBe(true);
    expect(tokensOf('{"prompt":["",""]}', COMPLETIONS)).toBe(0);
    expect(view.spanCount).toBe(0);
  });

  it("ids are tokens as they are", () => {
    expect(tokensOf('{"prompt":[1,2,3,4,5]}', COMPLETIONS)).toBe(5);
    expect(keys().length).toBe(2);
    expect(view.whole).toBe(0);
    differ('{"prompt":[1,2,3,4,5]}', '{"prompt":[2,1,3,4,5]}', COMPLETIONS);
    expect(shared(keysOf('{"prompt":[1,2,3,4,5]}', COMPLETIONS), keysOf('{"prompt":[1,2,3,4,6,7,8,9]}', COMPLETIONS))).toBe(1);
    expect(tokensOf('{"prompt":[0,4294967295]}', COMPLETIONS)).toBe(2);
    differ('{"prompt":[1,2,3,4]}', '{"prompt":[257,2,3,4]}', COMPLETIONS);
  });

  it("lists of ids are prompts", () => {
    expect(tokensOf('{"prompt":[[1,2,3,4,5],[],[6,7]]}', COMPLETIONS)).toBe(7);
    expect(view.spanCount).toBe(2);
    const b = keys(1);
    expect(same(keys(0), keysOf('{"prompt":[1,2,3,4,5]}', COMPLETIONS))).toBe(true);
    expect(same(b, keysOf('{"prompt":[[6,7]]}', COMPLETIONS))).toBe(true);
  });

  it("a list of one prompt is that prompt", () => {
    equal('{"prompt":["' + text(40) + '"]}', '{"prompt":"' + text(40) + '"}', COMPLETIONS);
  });

  it("forms that are no prompt are not counted, and no error", () => {
    const odd: StaticArray<string> = ["{}", '{"a":1}', "true", "5", "[true]", "[null]", "[{}]", '[["a"]]', "[[[1]]]", "[[null]]", "[1.5]", "[-1]", "[4294967296]", "[18446744073709551617]", "[1e3]", "[[1,-2]]"];
    for (let i = 0; i < odd.length; i++) expect(tokensOf('{"prompt":' + odd[i] + "}", COMPLETIONS)).toBe(-1, odd[i]);
    counts('{"prompt":null}', COMPLETIONS, 0);
    counts('{"prompt":[]}', COMPLETIONS, 0);
  });

  it("thousands of prompts are all counted, and keyed as far as they are looked up", () => {
    useBlocks(1, 1 << 20);
    const body = joined(utf8('{"prompt":["'), repeated('abcdefgh","', 10000), utf8('end."]}'));
    expect(read(body, COMPLETIONS)).toBe(ScanError.None);
    expect(view.tokens).toBe(20001);
    expect(view.spanCount).toBeLessThanOrEqual(64);
    expect(view.keyCount).toBeLessThanOrEqual(64 * 2);
    expect(view.whole).toBe(1);
  });

  it("keys stop at the cap, tokens do not", () => {
    useBlocks(4, 3);
    const capped = keysOf('{"prompt":"' + text(200) + '"}', COMPLETIONS);
    expect(capped.length).toBe(3);
    expect(view.tokens).toBe(50);
    expect(view.span(0).partial).toBe(0);
    expect(view.tokensOf(0, 3)).toBe(12);
    useBlocks(4, 1024);
    expect(shared(capped, keysOf('{"prompt":"' + text(200) + '"}', COMPLETIONS))).toBe(3);
    useBlocks(4, 0);
    expect(keysOf('{"prompt":"' + text(200) + '"}', COMPLETIONS).length).toBe(0);
    expect(view.tokens).toBe(50);
  });

  it("the cap is of the whole prompt, the text in front included", () => {
    useBlocks(4, 3);
    const body = '{"system":"' + text(20) + '","messages":[{"role":"user","content":"' + text(200, 50) + '"}]}';
    expect(keysOf(body, MESSAGES).length).toBe(3);
    expect(view.span(0).partial).toBe(0);
    expect(keysOf(body.replace(text(20), text(100)), MESSAGES).length).toBe(3);
    expect(view.tokensOf(0, 3)).toBe(12);
  });
});

describe("generate", () => {
  it("S-PX-32 tokens that the client sent are kept; only the salt is added", () => {
    expect(tokensOf('{"token_ids":[9906,1917,374,264,1296,315,279,9638,30]}', GENERATE)).toBe(9);
    expect(keys().length).toBe(3);
    differ('{"token_ids":[1,2,3,4,5]}', '{"cache_salt":"s","token_ids":[1,2,3,4,5]}', GENERATE);
    expect(tokensOf('{"cache_salt":"s","token_ids":[1,2,3,4,5]}', GENERATE)).toBe(5);
    expect(tokensOf('{"token_ids":[]}', GENERATE)).toBe(0);
  });

  it("anything else is not counted", () => {
    const odd: StaticArray<string> = ["null", '"1"', "1", "{}", "[[1]]", '["1"]', "[1.0]", "[-1]", "[4294967296]", "[null]", "[1,{}]"];
    for (let i = 0; i < odd.length; i++) expect(tokensOf('{"token_ids":' + odd[i] + "}", GENERATE)).toBe(-1, odd[i]);
  });
});

describe("messages", () => {
  it("the system text stands in front, as a string or as blocks", () => {
    counts('{"system":"abcde",' + USER, MESSAGES, 5 + 4 + 60);
    equal('{"system":"' + text(50) + '",' + USER, '{"system":[{"type":"text","text":"' + text(20) + '"},{"type":"text","text":"' + text(50).substring(20) + '"}],' + USER, MESSAGES);
    equal('{"system":"' + text(50) + '",' + USER, "{" + USER.substring(0, USER.length - 1) + ',"system":"' + text(50) + '"}', MESSAGES);
    differ('{"system":"a' + text(50) + '",' + USER, '{"system":"b' + text(50) + '",' + USER, MESSAGES);
    differ('{"system":"a",' + USER, "{" + USER, MESSAGES);
    equal('{"system":"",' + USER, "{" + USER, MESSAGES);
  });

  it("its keys are shared by all that have it, the partial last block's too", () => {
    for (let n = 1; n < 70; n += 7) {
      const a = keysOf('{"system":"' + text(n) + '",' + USER, MESSAGES);
      const front = (n + 15) / 16;
      expect(view.span(0).frontBlocks).toBe(front);
      const b = keysOf('{"system":"' + text(n) + '",' + USER.replace("w200", "x200"), MESSAGES);
      expect(shared(a, b)).toBe(front, n.toString());
      expect(view.tokensOf(0, front)).toBe((n + 3) / 4, n.toString());
      expect(view.tokensOf(0, front + 1)).toBe((n + 3) / 4 + 4, n.toString());
    }
  });

  it("S-PX-33 a billing-header system block is no part of the bytes", () => {
    const block = '{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"}';
    const clean = '{"system":[{"type":"text","text":"' + text(50) + '"}],' + USER;
    equal(clean, clean.replace("[{", "[" + block + ",{"), MESSAGES);
    equal(clean, clean.replace("[{", "[" + block.replace("0a1b2", "ffff") + ",{"), MESSAGES);
    equal(clean, clean.replace('"}],', '"},' + block + "],"), MESSAGES);
    equal(clean, clean.replace("[{", "[" + block.replace("{", '{"cache_control":{"type":"ephemeral"},') + ",{"), MESSAGES);
    // Only such a block, and only in front.
    differ(clean, clean.replace("[{", "[" + block.replace("x-anth", "y-anth") + ",{"), MESSAGES);
    counts(clean.replace('"' + text(60, 200) + '"', '[{"type":"text","text":"x-anthropic-billing-header: 1"}]'), MESSAGES, 50 + 4 + 29);
  });

  it("thinking, tool use and tool results take part", () => {
    const turn = '{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":"s"},{"type":"tool_use","id":"i","name":"n","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"R"}]}]}]}';
    const a = keysOf(turn, MESSAGES);
    const changes: StaticArray<string> = ['"T"', '"i","name"', '"n"', '"a":1', '"tool_use_id":"i"', '"R"'];
    const to: StaticArray<string> = ['"U"', '"j","name"', '"m"', '"a":2', '"tool_use_id":"j"', '"S"'];
    for (let i = 0; i < changes.length; i++) expect(same(a, keysOf(turn.replace(changes[i], to[i]), MESSAGES))).toBe(false, changes[i]);
    equal(turn, turn.replace('"type":"tool_use","id":"i","name":"n","input":{"a":1}', '"input":{"a":1},"name":"n","id":"i","type":"tool_use"'), MESSAGES);
    const plain = tokensOf('{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n","input":{"a":1}}]}]}', MESSAGES);
    expect(tokensOf('{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n","input":{"a":"' + text(400) + '"}}]}]}', MESSAGES) - plain).toBe(100);
  });

  it("pictures change the keys, nested ones too", () => {
    const image = '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}';
    const body = '{"messages":[{"role":"user","content":[' + image + ',{"type":"text","text":"' + text(40) + '"}]}]}';
    differ(body, body.replace("AAAA", "BBBB"), MESSAGES);
    const nested = '{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"R"},' + image + "]}]}]}";
    differ(nested, nested.replace("AAAA", "BBBB"), MESSAGES);
    const deeper = nested.replace(image, '{"type":"tool_result","content":[' + image + "]}");
    differ(deeper, deeper.replace("AAAA", "BBBB"), MESSAGES);
  });
});

describe("responses", () => {
  it("a string and items", () => {
    counts('{"input":"abcdefg"}', RESPONSES, 7);
    counts('{"instructions":"abc","input":"defg"}', RESPONSES, 7);
    counts('{"input":[{"role":"user","content":"abc"}]}', RESPONSES, 7);
    counts('{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"abcde"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"f"}]}]}', RESPONSES, 4 + 5 + 9 + 1);
    equal('{"instructions":"' + text(30) + '","input":"x"}', '{"input":"x","instructions":"' + text(30) + '"}', RESPONSES);
  });

  it("calls and their outputs take part", () => {
    const body = '{"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\\"a\\":1}"},{"type":"function_call_output","call_id":"c","output":"O"}]}';
    const a = keysOf(body, RESPONSES);
    const changes: StaticArray<string> = ['"call_id":"c","name"', '"f"', "1}", '"call_id":"c","output"', '"O"'];
    const to: StaticArray<string> = ['"call_id":"d","name"', '"g"', "2}", '"call_id":"d","output"', '"P"'];
    for (let i = 0; i < changes.length; i++) expect(same(a, keysOf(body.replace(changes[i], to[i]), RESPONSES))).toBe(false, changes[i]);
    expect(tokensOf(body.replace('"O"', '"' + text(400) + '"'), RESPONSES) - tokensOf(body.replace('"O"', '""'), RESPONSES)).toBe(100);
  });
});

describe("every other body", () => {
  it("has no tokens and no keys, whatever it holds", () => {
    expect(tokensOf('{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}],"prompt":"x","input":"y","token_ids":[1]}', ShapeId.Other)).toBe(-1);
    expect(view.keyCount).toBe(0);
    expect(view.mmItems).toBe(0);
    expect(view.tokens).toBe(0);
  });
});

describe("the model's name", () => {
  it("is decoded, and the last one's", () => {
    read(utf8('{"model":"a\\u00e9\\/b"}'), ShapeId.Other);
    expect(model()).toBe("aé/b");
    read(utf8('{"model":"a","model":"b"}'), CHAT);
    expect(model()).toBe("b");
    read(utf8('{"model":"a","model":5}'), CHAT);
    expect(model()).toBe("");
    read(utf8('{"messages":[{"model":"x"}]}'), CHAT);
    expect(model()).toBe("");
    read(joined(utf8('{"model":"'), repeated("abcd", 1000), utf8('"}')), CHAT);
    expect(model()).toBe("abcd".repeat(64));
  });

  it("stream is true or it is not", () => {
    read(utf8('{"stream":true}'), CHAT);
    expect(view.stream).toBe(true);
    const others: StaticArray<string> = ["false", "null", '"true"', "1", "{}"];
    for (let i = 0; i < others.length; i++) {
      read(utf8('{"stream":true,"stream":' + others[i] + "}"), CHAT);
      expect(view.stream).toBe(false, others[i]);
    }
  });
});
