import { describe, expect, it } from "vitest";
import { controlMemberLabel, controlMembers } from "./control-members.js";
import { makeScanner } from "./make-scanner.js";

function labels(text: string): string[] {
  const scanner = makeScanner("other");
  scanner.feed(Buffer.from(text));
  return controlMembers(scanner.end()).map(controlMemberLabel);
}

describe("controlMembers", () => {
  it("finds every door that a real engine left open, under any spelling", () => {
    expect(
      labels(
        '{"kv\\u005ftransfer_params":1,"\\u0065c_transfer_params":2,"bootstrap_host":3,"bootstrap\\u005froom":4,"vllm\\u005fxargs":{"kv_transfer_params":5,"ec_transfer_params":6},"sampling_params":{"extra_args":{"kv_transfer_params":7,"ec_transfer_params":8}},"kv_transfer_params":9}',
      ),
    ).toEqual([
      "kv_transfer_params",
      "ec_transfer_params",
      "bootstrap_*",
      "bootstrap_*",
      "vllm_xargs.kv_transfer_params",
      "vllm_xargs.ec_transfer_params",
      "sampling_params.extra_args.kv_transfer_params",
      "sampling_params.extra_args.ec_transfer_params",
      "kv_transfer_params",
    ]);
  });

  it("finds them in each of several inner objects", () => {
    expect(labels('{"vllm_xargs":{"kv_transfer_params":1},"vllm_xargs":{"kv_transfer_params":2}}')).toHaveLength(2);
  });

  it("leaves alone what steers nothing", () => {
    expect(labels('{"bootstrap":1,"metadata":{"kv_transfer_params":1},"vllm_xargs":{"bootstrap_host":1,"tag":1},"messages":[{"content":"kv_transfer_params"}]}')).toEqual([]);
  });
});
