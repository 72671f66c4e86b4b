import { describe, expect, it } from "vitest";
import { parseValue, type JsonObject } from "./json.js";
import { forEngine, hasChunks, needsMachine, readScripts } from "./scripts.js";
import { Slots } from "./slots.js";

const entry = (text: string): JsonObject => parseValue(text) as JsonObject;
const map = (text: string): string => text.replaceAll("10.0.1.20", "127.0.0.1");

describe("scripts for the engines", () => {
  it("have their addresses mapped, and JSON goes as its own text", () => {
    expect(forEngine(entry('{"status":200,"delay_ms":5,"json":{"remote_host":"10.0.1.20","id":9007199254740993,"t":1.0}}'), map, false)).toEqual({
      status: 200,
      delay_ms: 5,
      text: '{"remote_host":"127.0.0.1","id":9007199254740993,"t":1.0}',
      headers: { "content-type": "application/json" },
    });
  });

  it("keep a content type of their own", () => {
    expect(forEngine(entry('{"headers":{"Content-Type":"application/problem+json"},"json":null}'), map, false)).toEqual({ headers: { "Content-Type": "application/problem+json" }, text: "null" });
  });

  it("are sent piece by piece, or byte by byte", () => {
    const script = entry('{"chunks":["aé","10.0.1.20"]}');
    expect(forEngine(script, map, false).chunks).toEqual(["aé", "127.0.0.1"]);
    const bytes = forEngine(script, map, true).chunks ?? [];
    expect(bytes).toHaveLength(3 + "127.0.0.1".length);
    expect(Buffer.concat(bytes.map((byte) => Buffer.from(byte))).toString()).toBe("aé127.0.0.1");
  });

  it("say whether they have chunks", () => {
    expect(hasChunks(readScripts(entry('{"decode":[{"status":200},{"chunks":["a"]}]}')))).toBe(true);
    expect(hasChunks(readScripts(entry('{"decode":{"sse":["a"]}}')))).toBe(false);
    expect(hasChunks({})).toBe(false);
  });

  it("need the machine for themselves where a refusal is followed by something else", () => {
    expect(needsMachine(readScripts(entry('{"prefill":[{"tcp":"refused"},{"status":200}]}')))).toBe(true);
    expect(needsMachine(readScripts(entry('{"prefill":[{"status":200},{"tcp":"refused"}]}')))).toBe(false);
    expect(needsMachine(readScripts(entry('{"decode":{"tcp":"refused"}}')))).toBe(false);
  });
});

describe("runs side by side", () => {
  it("are as many as there are slots, in order, and those that need the machine are alone", async () => {
    const slots = new Slots(2);
    const log: string[] = [];
    let running = 0;
    const task = (name: string, alone: boolean): Promise<void> =>
      slots.run(async () => {
        running += 1;
        log.push(`${name} beside ${(running - 1).toString()}`);
        await new Promise((done) => setTimeout(done, 20));
        running -= 1;
      }, alone);
    await Promise.all([task("a", false), task("b", false), task("c", true), task("d", false), task("e", false), task("f", false)]);
    expect(log).toEqual(["a beside 0", "b beside 1", "c beside 0", "d beside 0", "e beside 1", expect.stringMatching(/^f beside [01]$/)]);
  });

  it("go on after one that failed", async () => {
    const slots = new Slots(1);
    await expect(slots.run(() => Promise.reject(new Error("x")), true)).rejects.toThrow("x");
    expect(await slots.run(() => Promise.resolve(1))).toBe(1);
  });
});
