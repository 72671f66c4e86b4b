import { describe, expect, it } from "vitest";
import { bodyForLog } from "./log.js";

describe("bodyForLog", () => {
  const image = `data:image/png;base64,${"QUJD".repeat(50_000)}==`;

  it("keeps a body as it is", () => {
    expect(bodyForLog([Buffer.from('{"model":"m",'), Buffer.from('"messages":[{"content":"Grüße"}]}')])).toBe('{"model":"m","messages":[{"content":"Grüße"}]}');
  });

  it("shortens data URLs and inline audio, and nothing else", () => {
    const text = bodyForLog([Buffer.from(`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"${image}"}},{"type":"input_audio","input_audio":{"data":"${"UklG".repeat(1000)}"}}]}],"id":"${"a".repeat(200)}"}`)]);
    expect(text).toBe(
      `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,${"QUJD".repeat(16)}...[199938 more]"}},{"type":"input_audio","input_audio":{"data":"${"UklG".repeat(16)}...[3936 more]"}}]}],"id":"${"a".repeat(200)}"}`,
    );
  });

  it("is cut where it is long all the same, and takes what is no text", () => {
    expect(bodyForLog([Buffer.from("word ".repeat(10_000))]).length).toBeLessThan(17_000);
    expect(bodyForLog([Buffer.from([0xff, 0xfe, 0x00])]).length).toBeGreaterThan(0);
  });
});
