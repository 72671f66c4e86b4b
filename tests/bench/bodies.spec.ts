import { describe, expect, it } from "vitest";
import { base64, type BodySpec, chatBody, chatRequest, NONCE_BYTES, nonce, words } from "./bodies.js";

const text: BodySpec = { kind: "text", bytes: 1024, stream: false, headers: [] };

describe("chatBody", () => {
  it.each([
    [text],
    [{ ...text, bytes: 32768 }],
    [{ ...text, bytes: 1 << 20, stream: true }],
    [{ ...text, kind: "image" as const, bytes: 4 << 20 }],
  ])("is JSON of exactly the size that was asked for", (spec) => {
    const { body } = chatBody(spec);
    expect(body).toHaveLength(spec.bytes);
    const parsed = JSON.parse(body.toString("utf8")) as { messages: unknown[]; stream?: boolean };
    expect(parsed.messages).toHaveLength(1);
    expect(parsed.stream === true).toBe(spec.stream);
  });
  it("has its nonce at the very start of the prompt", () => {
    const { body, nonceAt } = chatBody(text);
    body.write(nonce(5, 6), nonceAt, "latin1");
    const { messages } = JSON.parse(body.toString("utf8")) as { messages: { content: string }[] };
    expect(messages[0]?.content.startsWith("0000000500000006 ")).toBe(true);
  });
  it("refuses a size without room for a prompt", () => {
    expect(() => chatBody({ ...text, bytes: 50 })).toThrow("no room");
  });
});

describe("chatRequest", () => {
  it("says its body's length and carries further headers", () => {
    const { bytes, nonceAt } = chatRequest({ ...text, headers: ["x-prefiller-host-port: 127.0.0.1:9"] });
    const [head = "", body = ""] = bytes.toString("latin1").split("\r\n\r\n");
    expect(head).toContain("content-length: 1024");
    expect(head).toContain("\r\nx-prefiller-host-port: 127.0.0.1:9");
    expect(body).toHaveLength(1024);
    expect(bytes.toString("latin1", nonceAt, nonceAt + NONCE_BYTES)).toBe("n".repeat(NONCE_BYTES));
  });
});

describe("fillings", () => {
  it("are as long as asked for, the same every time, and need no escapes", () => {
    expect(words(1000, 3)).toHaveLength(1000);
    expect(words(1000, 3)).toBe(words(1000, 3));
    expect(words(1000, 3)).not.toBe(words(1000, 4));
    expect(words(5000, 3)).toMatch(/^[a-z ]+$/);
    expect(base64(4096, 1)).toMatch(/^[A-Za-z0-9+/]{4096}$/);
  });
});

describe("nonce", () => {
  it("is unique in a run, and between runs", () => {
    expect(nonce(1, 2)).toHaveLength(NONCE_BYTES);
    expect(new Set([nonce(1, 2), nonce(2, 1), nonce(1, 3), nonce(0xffffffff, 2)]).size).toBe(4);
  });
});
