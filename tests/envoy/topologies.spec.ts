import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { EngineDirectory, startEngine, type Engine, type EngineRecord } from "../engine/index.js";
import type { DecisionRecord } from "../fleet/access-log.js";
import { Fleet } from "../fleet/fleet.js";
import { send } from "../fleet/http.js";
import type { PickerDocument } from "../fleet/picker.js";
import { inRoot } from "../fleet/root.js";
import { chat, decisionOf, promptText } from "./filter-bed.js";

// The seed's configurations on a whole fleet: Envoy, filter, sidecars, and engines that say what they were asked.

const IMAGE = { type: "image_url", image_url: { url: "https://media.example.test/harbour.png" } };
const MEDIA: Record<string, unknown> = {
  image_url: IMAGE,
  audio_url: { type: "audio_url", audio_url: { url: "https://media.example.test/horn.wav" } },
  video_url: { type: "video_url", video_url: { url: "https://media.example.test/tide.mp4" } },
  input_audio: { type: "input_audio", input_audio: { data: "UklGRiQAAABXQVZF", format: "wav" } },
};

class Stack {
  private constructor(readonly fleet: Fleet<Engine>) {}

  static async start(picker: PickerDocument): Promise<Stack> {
    const peers = new EngineDirectory();
    return new Stack(
      await Fleet.start<Engine>({
        pods: { decode: 2, prefill: 2, encode: 2 },
        startEngine: ({ name, role, host }) => startEngine({ name, role, host, peers, ecConnector: "ec-example" }),
        envoy: { picker, filterOptions: { reasonHeader: true } },
        sidecarFlags: [["ec-connector", "ec-example"]],
        taps: false,
      }),
    );
  }

  /** Sends, and tells what was decided and which legs the engines saw, in order of start. */
  async ask(body: unknown, path = "/v1/chat/completions"): Promise<{ status: number | null; decision: DecisionRecord; legs: EngineRecord[]; stages: string }> {
    const running = this.fleet.running;
    if (running === null) throw new Error("no Envoy");
    for (const pod of this.fleet.pods) await pod.engine.idle();
    const before = new Map(this.fleet.pods.map((pod) => [pod.name, pod.engine.records().length]));
    const answer = await send({ ...running.listen, method: "POST", path, headers: [["content-type", "application/json"]], body: Buffer.from(JSON.stringify(body)) });
    const legs = this.fleet.pods
      .flatMap((pod) => pod.engine.records().slice(before.get(pod.name)))
      .filter((record) => record.modelCall)
      .sort((a, b) => a.startedAtMs - b.startedAtMs);
    for (const leg of legs) expect(leg.error, `${leg.engine}: ${String(leg.error)}`).toBeNull();
    return { status: answer.status, decision: decisionOf(answer), legs, stages: legs.map((leg) => leg.stage).join(" ") };
  }

  /** The engine behind an endpoint's address. */
  nameOf(address: string): string {
    return this.fleet.pods.find((pod) => `${pod.address.host}:${pod.address.port.toString()}` === address)?.name ?? address;
  }

  close(): Promise<void> {
    return this.fleet.close();
  }
}

function config(name: string): PickerDocument {
  return parse(readFileSync(inRoot("tests", "fixtures", "good-configs", `${name}.yaml`), "utf8")) as PickerDocument;
}

/** The configuration with its prefill decider's numbers changed. */
function thresholds(document: PickerDocument, nonCachedTokens: number, promptTokens: number): PickerDocument {
  const changed = structuredClone(document);
  for (const plugin of changed.plugins) if (plugin.type === "prefix-based-pd-decider") plugin.parameters = { nonCachedTokens, promptTokens };
  return changed;
}

let stack: Stack | null = null;
async function started(picker: PickerDocument): Promise<Stack> {
  stack = await Stack.start(picker);
  return stack;
}
afterEach(async () => {
  await stack?.close();
  stack = null;
});

describe("P/D with the seed's configuration", () => {
  it("splits what is long and cold, not what is short or warm; the KV hit is on the picked pod; the cap of 256 blocks holds", async () => {
    const { ask, nameOf } = bind(await started(config("seed-p-d")));
    const short = await ask(chat(5));
    expect(short).toMatchObject({ status: 200, stages: "decode", decision: { decision: "decode-only", prefill: { reason: "skip_short_prompt" }, encode: { reason: "skip_no_decider" } } });
    for (const tokens of [300, 600, 1200]) {
      const cold = await ask(chat(tokens, `${tokens.toString()} tokens: `));
      expect(cold).toMatchObject({ status: 200, stages: "prefill decode", decision: { decision: "prefill-decode", prefill: { reason: "run_uncached" }, cachedTokens: 0, tokens } });
      const [prefill, decode] = cold.legs;
      expect(prefill?.engine).toBe(nameOf(cold.decision.prefill.endpoint));
      // The hand-off was really there, and was taken.
      expect(decode?.handoff).toMatchObject({ found: true });
      const warm = await ask(chat(tokens, `${tokens.toString()} tokens: `));
      expect(warm).toMatchObject({ status: 200, stages: "decode", decision: { decision: "decode-only", prefill: { reason: "skip_cached" }, cachedTokens: tokens, decode: { endpoint: cold.decision.decode.endpoint } } });
      // The engine has it, too: all but the last block.
      expect(warm.legs[0]?.cachedTokens).toBeGreaterThan(0);
      expect(warm.legs[0]?.engine).toBe(decode?.engine);
    }
    const long = chat(2000, "two thousand ");
    expect((await ask(long)).decision.prefill.reason).toBe("run_uncached");
    // 256 blocks of 5 tokens are all that is looked at: 720 tokens stay uncached.
    const again = await ask(long);
    expect(again).toMatchObject({ stages: "prefill decode", decision: { prefill: { reason: "run_uncached" }, cachedTokens: 1280 } });
  });

  it("2,000 warm tokens are decode-only without the seed's cap", async () => {
    const picker = config("seed-p-d");
    for (const plugin of picker.plugins) if (plugin.type === "prefix-cache-scorer") delete plugin.parameters?.maxPrefixBlocksToMatch;
    const { ask } = bind(await started(picker));
    await ask(chat(2000, "two thousand "));
    expect(await ask(chat(2000, "two thousand "))).toMatchObject({ stages: "decode", decision: { prefill: { reason: "skip_cached" }, cachedTokens: 2000 } });
  });

  it("promptTokens and nonCachedTokens: at the threshold, one below and one above", async () => {
    const { ask } = bind(await started(thresholds(config("seed-p-d"), 50, 200)));
    const reason = async (tokens: number, salt: string): Promise<string> => (await ask(chat(tokens, salt))).decision.prefill.reason;
    expect(await reason(199, "one below ")).toBe("skip_short_prompt");
    expect(await reason(200, "exactly at ")).toBe("run_uncached");
    expect(await reason(201, "one above ")).toBe("run_uncached");
    // 300 tokens of text are cached, whole blocks of 5; what follows them, the role's token included, is the suffix that counts.
    const base = promptText(301, "shared start ");
    const grown = (uncached: number): unknown => ({ model: "m", messages: [{ role: "user", content: base + `${uncached.toString()}${"#".repeat(400)}`.slice(0, (uncached - 1) * 4) }], max_tokens: 2 });
    await ask({ model: "m", messages: [{ role: "user", content: base }], max_tokens: 2 });
    expect((await ask(grown(49))).decision).toMatchObject({ prefill: { reason: "skip_short_suffix" }, tokens: 349, cachedTokens: 300 });
    expect((await ask(grown(50))).decision).toMatchObject({ prefill: { reason: "run_uncached" }, tokens: 350, cachedTokens: 300 });
    expect((await ask(grown(51))).decision).toMatchObject({ prefill: { reason: "run_uncached" }, tokens: 351, cachedTokens: 300 });
  });
});

describe("the handler examples", () => {
  it("decode-only: every request is local", async () => {
    const { ask } = bind(await started(config("handler-decode-only")));
    expect(await ask(chat(400))).toMatchObject({ stages: "decode", decision: { decision: "decode-only", prefill: { reason: "skip_no_decider" }, encode: { reason: "skip_no_decider" } } });
    expect(await ask({ model: "m", messages: [{ role: "user", content: [IMAGE] }], max_tokens: 2 })).toMatchObject({ stages: "decode", decision: { decision: "decode-only" } });
  });

  it("P/D and custom profile names", async () => {
    const { ask } = bind(await started(config("handler-custom-names")));
    expect(await ask(chat(400))).toMatchObject({ stages: "prefill decode", decision: { decision: "prefill-decode" } });
  });

  it("E/PD: media are encoded, the rest is local; text is local", async () => {
    const { ask, nameOf } = bind(await started(config("handler-e-pd")));
    expect(await ask(chat(400))).toMatchObject({ stages: "decode", decision: { decision: "decode-only", encode: { reason: "skip_text_only" } } });
    for (const [type, part] of Object.entries(MEDIA)) {
      const asked = await ask({ model: "m", messages: [{ role: "user", content: [{ type: "text", text: promptText(300, `${type} `) }, part] }], max_tokens: 2 });
      expect(asked, type).toMatchObject({ status: 200, stages: "encode decode", decision: { decision: "encode-decode", encode: { reason: "run_multimodal" }, prefill: { reason: "skip_no_decider" }, mmItems: 1 } });
      expect(asked.legs[0]?.engine, type).toBe(nameOf(asked.decision.encode.endpoints[0] ?? ""));
      // The decoder found the embedding that the encoder made.
      expect(["reference", "store"], type).toContain(asked.legs[1]?.media[0]?.source);
    }
  });
});

describe("E/P/D with the seed's configuration", () => {
  it("media go over encode, prefill and decode, or without prefill, as its rules say", async () => {
    const { ask } = bind(await started(config("seed-e-p-d")));
    for (const [type, part] of Object.entries(MEDIA)) {
      const body = { model: "m", messages: [{ role: "user", content: [{ type: "text", text: promptText(300, `${type} `) }, part] }], max_tokens: 2 };
      const cold = await ask(body);
      expect(cold, type).toMatchObject({ status: 200, stages: "encode prefill decode", decision: { decision: "encode-prefill-decode", encode: { reason: "run_multimodal" }, prefill: { reason: "run_uncached" } } });
      expect(["reference", "store"], type).toContain(cold.legs[1]?.media[0]?.source);
      expect(cold.legs[2]?.handoff, type).toMatchObject({ found: true });
      // Warm, the prompt's KV is on the decode pod. (A video's 4,500 place holders are more than the 256 blocks that are looked at.)
      const warm = await ask(body);
      if (type === "video_url") expect(warm, type).toMatchObject({ stages: "encode prefill decode", decision: { prefill: { reason: "run_uncached" } } });
      else expect(warm, type).toMatchObject({ stages: "encode decode", decision: { decision: "encode-decode", prefill: { reason: "skip_cached" } } });
    }
    expect(await ask(chat(300, "text only "))).toMatchObject({ stages: "prefill decode", decision: { encode: { reason: "skip_text_only" } } });
    expect(await ask(chat(4))).toMatchObject({ stages: "decode", decision: { decision: "decode-only" } });
  });
});

function bind(of: Stack): { ask: Stack["ask"]; nameOf: Stack["nameOf"] } {
  return { ask: of.ask.bind(of), nameOf: of.nameOf.bind(of) };
}
