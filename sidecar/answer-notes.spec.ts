import { describe, expect, it } from "vitest";
import { FirstEventId, responseIdIn, withNotes } from "./answer-notes.js";

describe("withNotes", () => {
  const both = { prefilledBy: "10.0.1.20:8000", responseId: "resp_1" };

  it("says what is known, in the place of whatever an engine says under those names", () => {
    expect(withNotes(["a", "1", "X-Crosspoint-Prefilled-By", "x", "x-crosspoint-response-id", "y", "A", "2"], 200, both)).toEqual(["a", "1", "A", "2", "x-crosspoint-prefilled-by", "10.0.1.20:8000", "x-crosspoint-response-id", "resp_1"]);
    expect(withNotes(["a", "1"], 201, { prefilledBy: null, responseId: null })).toEqual(["a", "1"]);
  });

  it.each([301, 404, 500])("says nothing of an answer with %i", (status) => {
    expect(withNotes(["x-crosspoint-prefilled-by", "x"], status, both)).toEqual([]);
  });
});

describe("responseIdIn", () => {
  it.each([
    ['{"id":"resp_1","output":[{"id":"msg_1"}]}', "resp_1"],
    ['{"type":"response.created","response":{"output":[],"id":"resp_2"},"id":"evt_1"}', "resp_2"],
    ['{"id":"a","id":"b"}', "b"],
    ['{"id":"\\u0072esp"}', "resp"],
    ['{"id":7}', null],
    ['{"id":""}', null],
    ['{"id":"a\\r\\nx: 1"}', null],
    ['{"id":"a b"}', null],
    [`{"id":"${"x".repeat(513)}"}`, null],
    ["[]", null],
    ["[DONE]", null],
    ["", null],
  ])("%s: %s", (json, id) => {
    expect(responseIdIn(Buffer.from(json))).toBe(id);
  });
});

describe("FirstEventId", () => {
  it("reads the first data line, at any cut, and asks for no more", () => {
    const text = Buffer.from(': ping\r\n\r\nevent: response.created\r\ndata: {"response":{"id":"resp_é1","x":"é"}}\r\ndata: {"response":{"id":"resp_2"}}\n'.replace("resp_é1", "resp_1"));
    const known = text.indexOf("}}\r\n") + 3;
    for (let cut = 0; cut <= text.length; cut++) {
      const first = new FirstEventId();
      expect([cut, first.push(text.subarray(0, cut))]).toEqual([cut, cut >= known]);
      expect(first.push(text.subarray(cut))).toBe(true);
      expect(first.id).toBe("resp_1");
    }
  });

  it("ends the wait where the first event has none", () => {
    const first = new FirstEventId();
    expect([first.push(Buffer.from("data: x\n")), first.id]).toEqual([true, null]);
  });

  it("gives a line up that is too long, and keeps none of it", () => {
    const first = new FirstEventId();
    expect(first.push(Buffer.from("data: "))).toBe(false);
    const piece = Buffer.alloc(100_000, "x");
    let pushed = 0;
    while (!first.push(piece)) pushed += 1;
    expect([pushed, first.id]).toEqual([10, null]);
  });

  it("does not look at what went before again", () => {
    const first = new FirstEventId();
    let known = false;
    for (let index = 0; index < 200_000; index++) known ||= first.push(Buffer.from(": \n"));
    expect([known, first.push(Buffer.from('data: {"response":{"id":"r"}}\r')), first.id]).toEqual([false, true, "r"]);
  });
});
