import { describe, expect, it } from "vitest";
import { labelSelector, readPool } from "./pool.js";

const GA = "inference.networking.k8s.io";
const ALPHA = "inference.networking.x-k8s.io";
const ga = (spec: unknown): ReturnType<typeof readPool> => readPool({ spec }, GA);
const alpha = (spec: unknown): ReturnType<typeof readPool> => readPool({ spec }, ALPHA);

describe("readPool", () => {
  it("C-SR-04: takes labels and ports of both groups, and no other shape", () => {
    const labels = { app: "vllm", "llm-d.ai/model": "m" };
    expect(ga({ selector: { matchLabels: labels }, targetPorts: [{ number: 8000 }, { number: 8001 }] })).toEqual({ labels, ports: new Set([8000, 8001]) });
    expect(alpha({ selector: labels, targetPortNumber: 8000 })).toEqual({ labels, ports: new Set([8000]) });
    expect(() => ga({ selector: labels, targetPorts: [{ number: 8000 }] })).toThrow("spec.selector.matchLabels: is missing");
    for (const group of [GA, ALPHA]) for (const object of [{}, null, "x", { spec: null }, { spec: [] }]) expect(() => readPool(object, group)).toThrow("spec: is missing");
  });

  it("names the field that is wrong", () => {
    const selector = { matchLabels: { a: "b" } };
    expect(() => ga({ targetPorts: [{ number: 1 }] })).toThrow("spec.selector: is missing");
    expect(() => ga({ selector: { matchLabels: { a: 1 } }, targetPorts: [{ number: 1 }] })).toThrow("spec.selector.matchLabels.a: is not a string");
    expect(() => ga({ selector })).toThrow("spec.targetPorts: names no port");
    expect(() => ga({ selector, targetPorts: [] })).toThrow("spec.targetPorts: names no port");
    expect(() => ga({ selector, targetPorts: [{ number: 8000 }, { port: 1 }] })).toThrow("spec.targetPorts[1].number: is not a port");
    for (const port of [0, 65_536, 1.5, "8000", undefined]) expect(() => alpha({ selector: { a: "b" }, targetPortNumber: port })).toThrow("spec.targetPortNumber: is not a port");
  });

  it("does not take an empty selector for every pod of the namespace", () => {
    expect(() => ga({ selector: { matchLabels: {} }, targetPorts: [{ number: 1 }] })).toThrow("spec.selector.matchLabels: names no label");
    expect(() => alpha({ selector: {}, targetPortNumber: 1 })).toThrow("spec.selector: names no label");
  });
});

it("labelSelector writes all labels", () => {
  expect(labelSelector({ labels: { a: "b", "c/d": "" } })).toBe("a=b,c/d=");
});
