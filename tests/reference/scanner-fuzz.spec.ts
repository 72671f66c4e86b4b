import { execFile } from "node:child_process";
import { describe, expect, it } from "vitest";
import { createScanner } from "../../sidecar/body/scanner.js";
import type { ApiShape, BodyView } from "../../sidecar/body/types.js";
import { built } from "../fleet/root.js";
import { BodyWriter } from "./body-writer.js";
import { Fuzz } from "./fuzz.js";
import { readBody } from "./plain-scanner.js";
import { Random } from "./random.js";
import { WRONG_RULES } from "./request-view.js";

const FAST = process.env["CROSSPOINT_FAST"] === "1";
const INPUTS = FAST ? 50_000 : 1_000_000;
/** On two cores that nobody else uses a million inputs take about a minute. */
const TIME_MS = 300_000;

interface Run {
  code: number | null;
  text: string;
}

/** The fuzz as a program, since it uses a thread for each core. */
function fuzz(...args: string[]): Promise<Run> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [built("js", "tests", "reference", "fuzz-main.js"), ...args], { timeout: TIME_MS }, (_error, stdout, stderr) => {
      resolve({ code: child.exitCode, text: stdout + stderr });
    });
  });
}

describe("the scanner against the plain reader", () => {
  it(`agrees on ${INPUTS.toLocaleString("en")} bodies, in random pieces, in every shape: view, keys, media, errors`, { timeout: TIME_MS + 10_000 }, async () => {
    const { code, text } = await fuzz("--inputs", String(INPUTS), "--seed", "1");
    expect(code, text).toBe(0);
    const [, inputs, valid] = /^(\d+) inputs, (\d+) of them read to their end, 0 faults/m.exec(text) ?? [];
    expect(Number(inputs)).toBeGreaterThanOrEqual(INPUTS);
    // Neither only good bodies nor only bad ones.
    expect(Number(valid) / Number(inputs)).toBeGreaterThan(0.25);
    expect(Number(valid) / Number(inputs)).toBeLessThan(0.75);
  });

  it("tells input, pieces and how to run it again, and runs it again", async () => {
    const { code, text } = await fuzz("--inputs", "5000", "--threads", "1", "--seed", "3", "--wrong", "tools-count-nothing");
    expect(code, text).toBe(1);
    expect(text).toMatch(/^tokens: the scanner says \d+, the plain reader \d+\n {2}input {3}".*\n {2}cuts .*\n {2}options \{.*\n {2}replay {2}node build\/js\/tests\/reference\/fuzz-main\.js --seed 3 --batch \d+/m);
    const batch = /--batch (\d+)/.exec(text)?.[1] ?? "";
    const again = await fuzz("--seed", "3", "--batch", batch, "--wrong", "tools-count-nothing");
    expect(again.text.split("\n").slice(0, 4)).toEqual(text.split("\n").slice(0, 4));
  });

  // Without these a fuzz that compares nothing would pass, too.
  it.each(WRONG_RULES)("sees within 51,200 inputs that a reader is wrong: %s", { timeout: TIME_MS }, (rule) => {
    const wrong = new Fuzz(7, rule);
    let what: string | null = null;
    for (let batch = 0; batch < 100 && what === null; batch++) what = wrong.batch(batch)?.what ?? null;
    expect(what).toMatch(/^(?!the plain reader gave up|the scanner trapped)/);
  });
});

/** Everything of a view but the keys' values, which only say what is equal; those become the index of the first equal item. */
function comparable(view: BodyView): unknown {
  if (view.error !== null) return { error: view.error, errorOffset: view.errorOffset };
  const keys = view.media.map(({ key }) => key);
  return { ...view, errorOffset: 0, media: view.media.map(({ key, ...item }) => ({ ...item, key: key === 0n ? -1 : keys.indexOf(key) })) };
}

function scan(body: Buffer, shape: ApiShape, cuts: readonly number[]): BodyView {
  const scanner = createScanner(shape);
  let at = 0;
  for (const cut of [...cuts, body.length]) {
    scanner.feed(body.subarray(at, cut));
    at = cut;
  }
  return scanner.end();
}

/** The same module as the sidecar sees it. */
describe("the sidecar's scanner against the plain reader", () => {
  const shapes: readonly ApiShape[] = ["chat", "completions", "messages", "responses", "generate", "other"];

  it("agrees on generated bodies in every shape, at generated cuts", () => {
    for (let seed = 1; seed <= 2000; seed++) {
      const random = new Random(seed);
      const shape = random.pick(shapes);
      const text = new BodyWriter(random).body(shape);
      const body = Buffer.from(text);
      const cuts = random.list(3, () => random.below(body.length + 1)).sort((a, b) => a - b);
      expect(comparable(scan(body, shape, cuts)), `seed ${String(seed)} ${shape}: ${text}`).toEqual(comparable(readBody(body, shape, { maxDepth: 8192, maxMembers: 4096 })));
    }
  });

  it("agrees on one body at every cut", () => {
    const body = Buffer.from(new BodyWriter(new Random(7)).body("chat") + " ");
    for (let cut = 0; cut <= body.length; cut++) expect(comparable(scan(body, "chat", [cut]))).toEqual(comparable(readBody(body, "chat")));
    expect(comparable(scan(body, "chat", Array.from({ length: body.length }, (_, at) => at)))).toEqual(comparable(readBody(body, "chat")));
  });
});
