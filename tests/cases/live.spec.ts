/** The runner on a real sidecar: what it observes is there, and what a case gets wrong fails. Cases through Envoy are run by ./scripts/test itself. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inRoot } from "../fleet/root.js";
import { BUILT } from "./features.js";
import { readCase } from "./format.js";
import { planCase } from "./plan.js";
import { run } from "./run.js";

const DATA = inRoot("tests", "cases", "data");
const LONG = "The harbour office keeps a ledger of every vessel that enters the bay, and the clerk signs the page before the lamps are lit.";
const CHAT = JSON.stringify({ model: "m", messages: [{ role: "user", content: LONG }], max_tokens: 4, seed: 1 });

let folder = "";
let made = 0;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "live-"));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Made {
  given?: Record<string, unknown>;
  expect: Record<string, unknown>;
  file?: unknown;
}

/** What is wrong in each run of a made case. */
async function findings(subject: Made): Promise<string[][]> {
  made += 1;
  const name = `${(800 + made).toString()}-made`;
  const given = { via: "sidecar", path: "/v1/chat/completions", needs: [], ...subject.given };
  writeFileSync(join(folder, `${name}.json`), typeof subject.file === "object" ? JSON.stringify(subject.file) : CHAT);
  writeFileSync(join(folder, `${name}.md`), `\`\`\`json given\n${JSON.stringify(given)}\n\`\`\`\n\`\`\`json expect\n${JSON.stringify(subject.expect)}\n\`\`\`\n`);
  const { runs } = planCase(readCase(folder, name), BUILT, true);
  const all: string[][] = [];
  for (const plan of runs) all.push(await run(plan, DATA));
  return all;
}

const PREFILL = { "x-prefiller-host-port": "10.0.1.20:8000" };

// Each run starts two sidecars: half a minute of CPU that `./scripts/test --fast` does without, the cases themselves are run there too.
describe.skipIf(process.env.CROSSPOINT_FAST !== undefined)("the runner on a real sidecar", { timeout: 60_000 }, () => {
  it("sees both legs, their bodies, headers and addresses, and that the hand-off was taken", async () => {
    const [wrong] = await findings({
      given: { headers: PREFILL, then: [{ headers: {} }] },
      expect: {
        sidecar: {
          prefill_calls: 1,
          decode_calls: 1,
          held_transfers: 0,
          prefill: { max_tokens: 1, stream: false, "kv_transfer_params.do_remote_decode": true },
          decode: { max_tokens: 4, "kv_transfer_params.remote_host": "10.0.1.20" },
          untouched: ["messages"],
          bytes_identical_except: ["kv_transfer_params", "max_tokens", "max_completion_tokens", "min_tokens", "stream"],
          paths: { prefill: "/v1/chat/completions" },
          header_absent: ["x-prefiller-host-port"],
          values_per_leg: { "x-request-id": 1 },
          unlisted_connections: 0,
          ready: true,
          alive: true,
        },
        client: { status: 200, choices: 1, headers: { "content-type": "application/json" } },
        then: [{ sidecar: { prefill_calls: 0, decode_calls: 1, decode: { kv_transfer_params: { absent: true } } }, client: { failures: 0 } }],
      },
    });
    expect(wrong).toEqual([]);
  });

  it("fails when the same is expected otherwise", async () => {
    const [wrong] = await findings({
      given: { headers: PREFILL },
      expect: {
        sidecar: { prefill_calls: 0, decode_calls: 2, prefill: { max_tokens: 4 }, decode: { "kv_transfer_params.remote_host": "10.0.1.99" }, bytes_identical_except: ["max_tokens"], ready: false, max_in_flight: 1 },
        client: { status: 500, json: { usage: { absent: true } } },
      },
    });
    expect(wrong?.map((text) => text.split(":")[0])).toEqual([
      "expect.sidecar.prefill_calls",
      "expect.sidecar.decode_calls",
      "expect.sidecar.prefill.max_tokens",
      "expect.sidecar.decode.kv_transfer_params.remote_host",
      "expect.sidecar.bytes_identical_except (prefill leg)",
      "expect.sidecar.bytes_identical_except (decode leg)",
      "expect.sidecar.ready",
      "expect.sidecar.max_in_flight",
      "expect.client.status",
      "expect.client.json.usage",
    ]);
  });

  it("counts connections to an address that the topology does not have", async () => {
    const [wrong] = await findings({ given: { headers: { "x-prefiller-host-port": "10.9.9.9:80" } }, expect: { sidecar: { unlisted_connections: 0, prefill_calls: 0 } } });
    expect(wrong).toEqual([expect.stringMatching(/^expect\.sidecar\.unlisted_connections: expected 0, saw [1-9]/)]);
  });

  it("maps addresses in scripts, in both directions: a message names the topology's", async () => {
    const handoff = { do_remote_prefill: true, do_remote_decode: false, remote_engine_id: "e", remote_block_ids: [[1]], remote_request_id: "r", remote_host: "10.0.1.20", remote_port: 5600, note: "10.0.1.21:8000" };
    const file = { kind: "backend-script", prefill: { status: 200, json: { kv_transfer_params: handoff, seed: 1 } }, decode: { status: 200, json: { choices: [], peer: "10.0.0.10:8000" } } };
    const [good, bad] = [
      { "kv_transfer_params.remote_host": "10.0.1.20", "kv_transfer_params.note": "10.0.1.21:8000" },
      { "kv_transfer_params.note": "10.0.1.20:8000" },
    ];
    const given = { headers: PREFILL, body: 18 };
    expect(await findings({ given, file, expect: { sidecar: { decode: good }, client: { json: { peer: "10.0.0.10:8000" } } } })).toEqual([[]]);
    const [wrong] = await findings({ given, file, expect: { sidecar: { decode: bad }, client: { json: { peer: "10.0.0.10:8000" } } } });
    expect(wrong).toEqual(['expect.sidecar.decode.kv_transfer_params.note: expected "10.0.1.20:8000", saw "10.0.1.21:8000"']);
  });

  it("counts scripted calls over all engines of a role, tells calls from refused connections, and runs each policy", async () => {
    const file = { kind: "backend-script", prefill: [{ status: 503, text: "busy", headers: { connection: "close" } }, { tcp: "reset" }, { tcp: "refused" }] };
    const found = await findings({
      given: { headers: PREFILL, body: 18, flags: { "prefill-max-retries": 3, "prefill-retry-backoff": "20ms" }, on_stage_failure: ["fail", "local"] },
      file,
      expect: { sidecar: { prefill_attempts: 4, prefill_calls: 1, fail: { decode_calls: 0 }, local: { decode_calls: 1 } }, client: { fail: { status_class: 5 }, local: { status: 200 } } },
    });
    expect(found).toEqual([[], []]);
  });

  it("lists endpoints that sidecars may call in a file, addresses mapped", async () => {
    const given = { via: "sidecar", body: 18, headers: PREFILL, flags: { "allow-endpoints": ["10.0.1.20:8000"] } };
    expect(await findings({ given, expect: { sidecar: { prefill_calls: 1, decode_calls: 1 }, client: { status: 200 } } })).toEqual([[]]);
    const denied = { ...given, flags: { "allow-endpoints": ["10.0.1.21:8000"] } };
    expect(await findings({ given: denied, expect: { sidecar: { prefill_calls: 0, decode_calls: 0 }, client: { status: 403 } } })).toEqual([[]]);
  });

  it("sees an engine's aborted leg when the client leaves", async () => {
    const file = { kind: "backend-script", prefill: { delay_ms: 3000 } };
    const given = { headers: PREFILL, body: 18, abort_after_ms: 100 };
    expect(await findings({ given, file, expect: { sidecar: { prefill_aborted: true, decode_calls: 0, alive: true } } })).toEqual([[]]);
    const [wrong] = await findings({ given: { ...given, abort_after_ms: 60_000 }, file: { kind: "backend-script", prefill: { delay_ms: 50 } }, expect: { sidecar: { prefill_aborted: true } } });
    expect(wrong).toEqual([expect.stringContaining("no prefill engine saw its socket closed")]);
  });

  it("sends chunks as they are written and byte by byte, and sees how a stream ends", async () => {
    const events = 'data: {"choices":[{"index":0,"delta":{"content":"\u00e9"}}]}\n\ndata: [DONE]\n\n';
    const whole = await findings({
      given: { body: 19 },
      file: { kind: "backend-script", decode: { status: 200, headers: { "content-type": "text/event-stream" }, chunks: [events.slice(0, 40), events.slice(40)] } },
      expect: { client: { status: 200, done: true, json: { "choices.0.delta.content": "\u00e9" } } },
    });
    expect(whole).toEqual([[], []]);
    const [cut] = await findings({ given: { body: 19 }, file: { kind: "backend-script", decode: { status: 200, sse: ["one"], then: "reset" } }, expect: { client: { done: false, failures: 1 } } });
    expect(cut).toEqual([]);
    const [expectedWhole] = await findings({ given: { body: 19 }, file: { kind: "backend-script", decode: { status: 200, sse: ["one"], then: "reset" } }, expect: { client: { done: true } } });
    expect(expectedWhole).toEqual([expect.stringContaining("expect.client.done: expected true, saw false")]);
  });

  it("starts cold each time: the same case gives the same counts again", async () => {
    const subject: Made = { given: { send: "twice-at-once", headers: PREFILL }, expect: { sidecar: { prefill_calls: 2, decode_calls: 2, distinct: ["kv_transfer_params.remote_request_id"] }, client: { failures: 0 } } };
    expect(await findings(subject)).toEqual([[]]);
    expect(await findings(subject)).toEqual([[]]);
  });

  it("says why a sidecar does not start", async () => {
    await expect(findings({ given: { flags: { "no-such-flag": 1 } }, expect: {} })).rejects.toThrow(/no-such-flag/);
  });
});
