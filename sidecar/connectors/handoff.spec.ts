import { describe, expect, it } from "vitest";
import { bytesOf } from "../body/json-spans.js";
import { readHandoff } from "./handoff.js";

function reason(params: string): string {
  const handoff = readHandoff(Buffer.from(`{"id":"x","kv_transfer_params":${params},"z":1}`));
  return handoff.kind === "invalid" ? handoff.reason : handoff.kind;
}

describe("readHandoff", () => {
  it.each([
    ['{"remote_block_ids":[[6,7]],"remote_request_id":"r","remote_port":5600,"x":null}'],
    ['{"remote_block_ids":[4,5],"remote_port":"5600"}'],
    ['{"remote_block_ids":[]}'],
    ['{"anything":{"goes":[1e400]}}'],
  ])("takes %s", (params) => {
    expect(reason(params)).toBe("handoff");
  });

  it.each([
    ["null", "missing"],
    ['"x"', "not_object"],
    ["[1]", "not_object"],
    ["{}", "empty"],
    ["{ }", "empty"],
    ['{"remote_port":"abc"}', "remote_port"],
    ['{"remote_port":""}', "remote_port"],
    ['{"remote_port":null}', "remote_port"],
    ['{"remote_block_ids":null}', "remote_block_ids"],
    ['{"remote_block_ids":"4"}', "remote_block_ids"],
    ['{"remote_block_ids":[[1]]}', "remote_request_id"],
    ['{"remote_block_ids":[[1]],"remote_request_id":null}', "remote_request_id"],
    ['{"remote_block_ids":[4],"remote_request_id":7}', "remote_request_id"],
    ['{"remote_request_id":"r","remote_request_id":7}', "remote_request_id"],
  ])("refuses %s: %s", (params, expected) => {
    expect(reason(params)).toBe(expected);
  });

  it("takes the last of two, as its bytes", () => {
    const body = Buffer.from('{"kv_transfer_params":null,"kv\\u005ftransfer_params":{ "remote_port" : 1.0, "b":18446744073709551617 }}');
    const handoff = readHandoff(body);
    expect(handoff.kind === "handoff" ? bytesOf(body, handoff.params).toString() : "").toBe('{ "remote_port" : 1.0, "b":18446744073709551617 }');
  });

  it("tells a missing member from an answer that is no JSON object", () => {
    expect(readHandoff(Buffer.from('{"id":1}'))).toEqual({ kind: "invalid", reason: "missing" });
    for (const text of ["", "<html>", "[]", "null", '{"kv_transfer_params":{"a":1}']) expect(readHandoff(Buffer.from(text)).kind).toBe("unreadable");
  });
});
