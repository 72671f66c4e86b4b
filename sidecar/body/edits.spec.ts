import { describe, expect, it } from "vitest";
import { BodyEditor } from "./edits.js";
import { makeScanner } from "./make-scanner.js";
import { Pieces } from "./pieces.js";
import type { BodyView, Member } from "./types.js";

interface Subject {
  readonly body: Pieces;
  readonly view: BodyView;
  readonly editor: BodyEditor;
}

function open(text: string, pieceBytes = 3): Subject {
  const bytes = Buffer.from(text);
  const list: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += pieceBytes) list.push(bytes.subarray(at, at + pieceBytes));
  const scanner = makeScanner("chat");
  for (const piece of list) scanner.feed(piece);
  const view = scanner.end();
  expect(view.error).toBeNull();
  const body = new Pieces(list);
  return { body, view, editor: new BodyEditor(body, view) };
}

function member(view: BodyView, name: string, occurrence = 0): Member {
  const found = view.members.filter((candidate) => candidate.name === name)[occurrence];
  if (found === undefined) throw new Error(`no ${name}`);
  return found;
}

function result({ editor }: Subject): string {
  return Buffer.concat(editor.apply()).toString();
}

function without(text: string, ...names: string[]): string {
  const subject = open(text);
  for (const found of subject.view.members) if (names.includes(found.name)) subject.editor.remove(found);
  return result(subject);
}

describe("BodyEditor", () => {
  it("gives the client's bytes back where nothing is edited", () => {
    const text = ' { "seed" : 9007199254740993, "x":1.0,"y":1e400, "a":1,"a":2 } \n';
    expect(result(open(text))).toBe(text);
  });

  it("removes members wherever they stand", () => {
    expect(without('{"n":1,"b":2}', "n")).toBe('{"b":2}');
    expect(without('{"a":1,"n":2}', "n")).toBe('{"a":1}');
    expect(without('{"a":1,"n":2,"b":3}', "n")).toBe('{"a":1,"b":3}');
    expect(without('{"n":2}', "n")).toBe("{}");
    expect(without('{ "n" : 2 }', "n")).toBe("{  }");
    expect(without('{\n "a": 1,\n "n": 2\n}', "n")).toBe('{\n "a": 1\n}');
  });

  it("removes neighbours, duplicates and everything", () => {
    expect(without('{"a":1,"n":1,"model":2}', "n", "model")).toBe('{"a":1}');
    expect(without('{"n":1,"model":2,"a":1}', "n", "model")).toBe('{"a":1}');
    expect(without('{"n":1 , "model":2}', "n", "model")).toBe("{}");
    expect(without('{"a":1, "n":1 ,"b":[2] , "n":{"x":"}"},"model":2 }', "n", "model")).toBe('{"a":1, "b":[2]  }');
  });

  it("inserts at the end of an object, with a comma only where something is left", () => {
    for (const [text, expected] of [
      ["{}", '{"k":1}'],
      ["{ }", '{ "k":1}'],
      ['{"a":1}', '{"a":1,"k":1}'],
      ['{"a":1 }', '{"a":1 ,"k":1}'],
    ] as const) {
      const subject = open(text);
      subject.editor.insert("k", "1");
      expect(result(subject)).toBe(expected);
    }
    const emptied = open('{"n":1,"model":2}');
    emptied.editor.remove(member(emptied.view, "n"));
    emptied.editor.remove(member(emptied.view, "model"));
    emptied.editor.insert("k", "1");
    emptied.editor.insert("l", [Buffer.from("[2"), Buffer.from("]")]);
    expect(result(emptied)).toBe('{"k":1,"l":[2]}');
  });

  it("edits inner objects and leaves their neighbours", () => {
    const subject = open('{"vllm_xargs":{"kv_transfer_params":{"a":1},"t":"x"},"sampling_params":{"extra_args":{"ec_transfer_params":1}},"n":1}');
    for (const found of subject.view.members) if (found.name.endsWith("_transfer_params")) subject.editor.remove(found);
    subject.editor.insertInto(member(subject.view, "sampling_params"), "max_tokens", "1");
    subject.editor.replaceValue(member(subject.view, "n"), "null");
    expect(result(subject)).toBe('{"vllm_xargs":{"t":"x"},"sampling_params":{"extra_args":{},"max_tokens":1},"n":null}');
  });

  it("drops an edit inside a member that is removed", () => {
    const subject = open('{"a":1,"vllm_xargs":{"kv_transfer_params":1}}');
    subject.editor.remove(member(subject.view, "vllm_xargs"));
    subject.editor.replaceValue(member(subject.view, "kv_transfer_params"), "2");
    subject.editor.insertInto(member(subject.view, "vllm_xargs"), "x", "3");
    expect(result(subject)).toBe('{"a":1}');
  });

  it("keeps what it does not name, for every set of removals and every place", () => {
    const names = ["n", "model", "stream", "kv_transfer_params"] as const;
    const values = ["1", '"a,}\\""', " [1,{}] ", '{"n":1}'];
    for (let order = 0; order < 24; order++) {
      const rest = [...names];
      const chosen: string[] = [];
      for (let left = rest.length, code = order; left > 0; code = Math.floor(code / left), left--) chosen.push(...rest.splice(code % left, 1));
      const text = `{ ${chosen.map((name, index) => `"${name}" :${values[index] ?? "0"}`).join(order % 2 === 0 ? "," : " ,\n ")} }`;
      for (let set = 0; set < 16; set++) {
        const removed = names.filter((_, index) => (set >> index) % 2 === 1);
        const subject = open(text, 1 + (set % 5));
        for (const found of subject.view.members) if (removed.some((name) => name === found.name && found.parent === "")) subject.editor.remove(found);
        const insert = set % 3 === 0;
        if (insert) subject.editor.insert("z", "true");
        const expected = JSON.parse(text) as Record<string, unknown>;
        for (const name of removed) Reflect.deleteProperty(expected, name);
        if (insert) expected["z"] = true;
        expect(JSON.parse(result(subject)), `${text} without ${removed.join()}`).toEqual(expected);
      }
    }
  });

  it("appends to an array, whatever stands around it, beside other edits", () => {
    const subject = open('{"n":1,"messages" : [ {"role":"user"} ] ,"stream":true}', 3);
    subject.editor.remove(member(subject.view, "n"));
    subject.editor.append(member(subject.view, "messages"), [Buffer.from('{"role":'), Buffer.from('"assistant"}')]);
    subject.editor.insert("z", "1");
    expect(result(subject)).toBe('{"messages" : [ {"role":"user"} ,{"role":"assistant"}] ,"stream":true,"z":1}');
  });

  it("edits 8 MiB of media without copying it", () => {
    const media = Buffer.alloc(8 * 1024 * 1024, "A");
    const head = Buffer.from('{"n":1,"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,');
    const tail = Buffer.from('"}}]}],"seed":9007199254740993,"seed":18446744073709551617}');
    const body = new Pieces([head, media, tail]);
    const scanner = makeScanner("chat");
    for (const piece of body.list) scanner.feed(piece);
    const view = scanner.end();
    const editor = new BodyEditor(body, view);
    editor.remove(member(view, "n"));
    editor.insert("stream", "false");
    const out = editor.apply();
    expect(out.some((piece) => piece.buffer === media.buffer && piece.byteOffset === media.byteOffset && piece.length === media.length)).toBe(true);
    const text = Buffer.concat(out).toString();
    expect(text.startsWith('{"messages":')).toBe(true);
    expect(text.endsWith(',"seed":9007199254740993,"seed":18446744073709551617,"stream":false}')).toBe(true);
  });
});
