/** Flags, environment and YAML (CFG), by what a sidecar does that is started with them. */
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { keyPair } from "../../../sidecar/certificate.js";
import { sendJson, TestUpstream } from "../../../sidecar/testkit/upstream.js";
import { freePort } from "../../fleet/ports.js";
import { jsonOf, post, type Refused, row, SidecarBed } from "./bed.js";
import { at, CHAT } from "./bodies.js";

describe("configuration", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "nixlv2", prefillers: 2 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  /** Started with these flags it ends, not with 0 (but upstream does, D9), and says what `told` says. */
  async function refused(flags: readonly string[], ...told: RegExp[]): Promise<Refused> {
    const launched = await bed.launch(flags);
    if (!("code" in launched)) throw new Error(`${flags.join(" ")}: was accepted`);
    for (const text of told) expect([flags, launched.text]).toEqual([flags, expect.stringMatching(text)]);
    return launched;
  }

  async function serves(flags: readonly string[], env: Record<string, string> = {}): Promise<void> {
    const launched = await bed.launch(flags, env);
    if ("code" in launched) throw new Error(`${flags.join(" ")}: ${launched.text}`);
    expect((await post(launched, { body: CHAT.body() })).status).toBe(200);
  }

  const yaml = (text: string): string => `--configuration=${text}`;

  row("C-CFG-01: TLS is on unless it is switched off, and the connector is nixlv2", async () => {
    const launched = await bed.launch(["--secure-proxy"]);
    if ("code" in launched) throw new Error(launched.text);
    expect(launched.url).toMatch(/^https:/);
    expect((await post(launched, { headers: bed.routed(bed.prefiller), body: CHAT.body() })).status).toBe(200);
    expect(Object.keys(at((await bed.calls(bed.prefiller))[0]?.json, ["kv_transfer_params"]) as object)).toContain("remote_block_ids");
  });

  row("C-CFG-02: the five KV connectors, and no other", async () => {
    for (const name of ["nixlv2", "shared-storage", "sglang", "mooncake", "offloading"]) await serves([`--kv-connector=${name}`]);
    await refused(["--kv-connector=lmcache"], /nixlv2.*shared-storage.*sglang.*mooncake.*offloading/s);
  });

  row("C-CFG-03: an unknown EC connector is refused with the two names", async () => {
    await refused(["--ec-connector=ec-other"], /ec-example/, /ec-nixl/);
  });

  row("C-CFG-04: an unknown stage is refused with the three names", async () => {
    await refused(["--enable-tls=prefiller,bad"], /prefiller/, /decoder/, /encoder/);
  });

  row("C-CFG-05: stages that are repeated and listed are united", async () => {
    const pair = await keyPair("");
    const engine = await TestUpstream.start((_, response) => {
      sendJson(response, "{}");
    }, pair);
    const prefiller = await TestUpstream.start((_, response) => {
      sendJson(response, '{"kv_transfer_params":{"a":1}}');
    }, pair);
    const door = await bed.sidecar(`--model-server-port=${String(engine.port)}`, "--enable-tls=encoder", "--enable-tls=decoder,prefiller", "--tls-insecure-skip-verify=decoder", "--tls-insecure-skip-verify=prefiller,encoder");
    expect((await post(door, { headers: ["x-prefiller-host-port", prefiller.authority], body: CHAT.body() })).status).toBe(200);
    expect([prefiller.received.length, engine.received.length]).toEqual([1, 1]);
    await Promise.all([engine.close(), prefiller.close()]);
  });

  row("C-CFG-06: SSRF protection without a pool is refused", async () => {
    await refused(["--enable-ssrf-protection"], /inference-pool|namespace/i);
  });

  row("C-CFG-07: a pool's name has one slash at most, and no empty half", async () => {
    for (const name of ["a/b", "b"]) await serves([`--inference-pool=${name}`]);
    for (const name of ["a/b/c", "/b", "a/"]) await refused([`--inference-pool=${name}`], /inference-pool/);
  });

  row("C-CFG-08: fewer than one rank is refused", async () => {
    for (const size of ["0", "-1"]) await refused([`--data-parallel-size=${size}`], /data-parallel-size/);
  });

  row("C-CFG-09: a port that is none is refused by its flag's name", async () => {
    for (const port of ["abc", "0", "65536"]) {
      await refused([`--port=${port}`], /--port/);
      await refused([`--model-server-port=${port}`], /--model-server-port/);
      await refused([`--vllm-port=${port}`], /--vllm-port/);
    }
  });

  row("C-CFG-10: the last rank's port must exist", async () => {
    for (const flag of ["port", "model-server-port"]) await refused([`--${flag}=65535`, "--data-parallel-size=2"], new RegExp(`--${flag}`));
    await refused(["--model-server-port=65535", "--data-parallel-size=2"]);
    const launched = await bed.launch(["--model-server-port=65534", "--data-parallel-size=2"]);
    expect("code" in launched).toBe(false);
  });

  row("C-CFG-11: p2p ports, with ranks", async () => {
    await refused(["--p2p-connector-port=70000"], /p2p-connector-port/);
    await refused(["--p2p-connector-port=65533", "--data-parallel-size=4"], /p2p-connector-port/);
    const launched = await bed.launch(["--p2p-connector-port=65532", "--data-parallel-size=4"]);
    expect("code" in launched).toBe(false);
  });

  row("C-CFG-12: p2p pull only with nixlv2", async () => {
    for (const name of ["shared-storage", "offloading"]) await refused(["--enable-p2p-pull", `--kv-connector=${name}`], /enable-p2p-pull/);
    await serves(["--enable-p2p-pull"]);
  });

  row("C-CFG-13: retries need a backoff", async () => {
    await refused(["--prefill-max-retries=1", "--prefill-retry-backoff=0s"], /prefill-retry-backoff/);
  });

  row("C-CFG-14: a negative chunk size, a bootstrap port of 0", async () => {
    await refused(["--decode-chunk-size=-1"], /decode-chunk-size/);
    await refused(["--mooncake-bootstrap-port=0"], /mooncake-bootstrap-port/);
  });

  row("C-CFG-15: YAML sets what flags set", async () => {
    const door = await bed.sidecar(
      yaml(
        JSON.stringify({
          "model-server-port": bed.decoder.port,
          "kv-connector": "shared-storage",
          "ec-connector": "ec-example",
          "data-parallel-size": 1,
          "mooncake-bootstrap-port": 8999,
          "p2p-connector-port": 7778,
          "enable-prefiller-sampling": true,
          "prefill-max-retries": 1,
          "prefill-retry-backoff": "5ms",
          "decode-chunk-size": 4,
          "max-idle-conns-per-host": 7,
          "inference-pool": "a/b",
        }),
      ),
    );
    bed.prefiller.setScript([{ status: 503, json: {} }, { json: {} }]);
    expect((await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body({ max_tokens: 8 }) })).status).toBe(200);
    // Retried as it says; shared-storage, by its threshold; in chunks of four.
    expect((await bed.calls(bed.prefiller)).map((call) => jsonOf(call)["cache_hit_threshold"])).toEqual([0, 0]);
    expect((await bed.calls(bed.decoder)).map((call) => jsonOf(call)["max_tokens"])).toEqual([4, 4]);
  }, { ours: true });

  row("C-CFG-16: typed flags win over YAML, also an explicit false", async () => {
    const [first, second] = [bed.prefillers[0] ?? bed.prefiller, bed.prefillers[1] ?? bed.prefiller];
    const door = await bed.sidecar(yaml(JSON.stringify({ "enable-prefiller-sampling": true, "model-server-port": 1, "kv-connector": "nixlv2" })), `--model-server-port=${String(bed.decoder.port)}`, "--enable-prefiller-sampling=false");
    for (let round = 0; round < 12; round++) expect((await post(door, { headers: bed.routed(first, second), body: CHAT.body() })).status).toBe(200);
    expect([(await bed.calls(first)).length, (await bed.calls(second)).length]).toEqual([12, 0]);
  });

  row("C-CFG-17: unknown, removed and repeated keys, broken YAML and two sources are refused", async () => {
    await refused([yaml("colour: red")], /colour/);
    await refused([yaml("connector: nixlv2")], /connector/);
    await refused([yaml("port: [")]);
    await refused([yaml("port: 8000"), "--configuration-file=/nowhere.yaml"], /configuration/);
    await refused(["--configuration-file=/nowhere.yaml"], /nowhere\.yaml/);
  });

  row("C-CFG-18: an unreadable backoff in YAML is a note, and the default stays", async () => {
    const door = await bed.sidecar(yaml(JSON.stringify({ "model-server-port": bed.decoder.port, "prefill-retry-backoff": "xx", "prefill-max-retries": 1 })));
    bed.prefiller.setScript([{ status: 503, json: {} }, {}]);
    const startedAt = performance.now();
    expect((await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body() })).status).toBe(200);
    expect([performance.now() - startedAt > 95, /backoff/.test(door.log())]).toEqual([true, true]);
  });

  row("C-CFG-19: --vllm-port beats YAML's model-server-port, with a note", async () => {
    const door = await bed.sidecar(yaml('{"model-server-port":1}'), `--vllm-port=${String(bed.decoder.port)}`);
    expect([(await post(door, { body: CHAT.body() })).status, /deprecated/i.test(door.log())]).toEqual([200, true]);
  });

  row("C-CFG-20: --model-server-port wins over its old name", async () => {
    await serves(["--vllm-port=1", `--model-server-port=${String(bed.decoder.port)}`]);
  });

  row("C-CFG-21: environment values are used, bad ones ignored", async () => {
    const port = await freePort();
    const pulled = async (env: Record<string, string>): Promise<unknown> => {
      const launched = await bed.launch(["--enable-p2p-pull"], env);
      if ("code" in launched) throw new Error(launched.text);
      await post(launched, { headers: ["x-kv-cache-source-host-port", "127.0.0.9:8000"], body: CHAT.body() });
      return /"remote_port":(\d+)/.exec((await bed.calls(bed.decoder)).at(-1)?.body.toString() ?? "")?.[1];
    };
    bed.decoder.setScript({ json: {} });
    expect(await pulled({ P2P_CONNECTOR_PORT: String(port) })).toBe(String(port));
    expect(await pulled({ P2P_CONNECTOR_PORT: "seven" })).toBe("7777");
    bed.decoder.setScript(null);
    await serves([], { ENABLE_PREFILLER_SAMPLING: "perhaps", MOONCAKE_BOOTSTRAP_PORT: "x" });
    expect("code" in (await bed.launch([], { INFERENCE_POOL: "a/b/c" }))).toBe(true);
  });

  row(
    "C-CFG-22: a refusal ends the process with a code that is not 0, and one line that names the option",
    async () => {
      for (const flags of [["--kv-connector=x"], ["--port=abc"], ["--nonsense"], ["--data-parallel-size=0"], [yaml("port: [")]]) {
        const { code, text } = await refused(flags);
        expect([flags, code, text.trim().split("\n").length]).toEqual([flags, 2, 1]);
      }
    },
    { fix: true },
  );

  row(
    "C-CFG-23: offloading with two ranks is refused in the seed's dialect",
    async () => {
      await refused(["--kv-connector=offloading", "--data-parallel-size=2"], /data-parallel-size|offloading/);
    },
    { fix: true },
  );
});
