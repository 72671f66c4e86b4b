import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { describeOptions, HelpRequested, KV_CONNECTORS, namesConfiguration, OptionsError, parseOptions as parse, type ParsedOptions, type SidecarOptions } from "./options.js";
import { readYaml } from "./options-yaml.js";

function parseOptions(argv: readonly string[], env: Record<string, string>): ParsedOptions {
  return parse(argv, env, readYaml);
}

function options(...argv: string[]): SidecarOptions {
  return parseOptions(argv, {}).options;
}

function refusal(argv: string[], env: Record<string, string> = {}): string {
  try {
    parseOptions(argv, env);
  } catch (error) {
    if (error instanceof OptionsError) return error.message;
    throw error;
  }
  throw new Error(`not refused: ${argv.join(" ")}`);
}

const YAML_ALL = `
port: 9100
model-server-port: 9200
mooncake-bootstrap-port: 9300
p2p-connector-port: 9400
kv-connector: nixlv2
ec-connector: ec-nixl
enable-prefiller-sampling: true
secure-proxy: false
cert-path: /certs
enable-tls: [prefiller, "decoder"]
tls-insecure-skip-verify: [encoder]
inference-pool: ns/pool
pool-group: inference.networking.x-k8s.io
max-idle-conns-per-host: 7
prefill-max-retries: 3
prefill-retry-backoff: 50ms
metrics-port: 9500
on-stage-failure: local
prefill-timeout: 1m
encode-timeout: 2s
decode-first-byte-timeout: 3s
trust-client-control-members: true
allow-path: [/x, /y]
body-limit: 1000
drain-timeout: 5s
kv-params-dialect: v2
sglang-bootstrap-port: 9600
rotate-encoders: true
pod-ip: "[fd00::1]"
log-level: debug
listen-address: 127.0.0.1
decoder-host: "::1"
tracing: true
allow-endpoints: /endpoints.yaml
allow-port: [8001, "8002"]
body-timeout: 7s
client-idle-timeout: 8s
max-buffered-bytes: 2000000000
max-media-items: 64
`;

describe("options", () => {
  const folders: string[] = [];
  afterEach(() => {
    for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
  });

  function file(text: string): string {
    const folder = mkdtempSync(join(tmpdir(), "sidecar-options-"));
    folders.push(folder);
    const path = join(folder, "config.yaml");
    writeFileSync(path, text);
    return path;
  }

  it("C-CFG-01: without arguments the defaults hold", () => {
    expect(describeOptions(options())).toEqual({
      port: 8000,
      "model-server-port": 8200,
      "data-parallel-size": 1,
      "kv-connector": "nixlv2",
      "ec-connector": "",
      "mooncake-bootstrap-port": 8998,
      "p2p-connector-port": 7777,
      "enable-p2p-pull": false,
      "enable-prefiller-sampling": false,
      "enable-tls": [],
      "tls-insecure-skip-verify": [],
      "secure-proxy": true,
      "cert-path": "",
      "enable-ssrf-protection": false,
      "inference-pool": "",
      "pool-group": "inference.networking.k8s.io",
      "max-idle-conns-per-host": 1024,
      "prefill-max-retries": 0,
      "prefill-retry-backoff": "200ms",
      "decode-chunk-size": 0,
      tracing: false,
      "metrics-port": 0,
      "listen-address": "",
      "decoder-host": "localhost",
      "on-stage-failure": "fail",
      "prefill-timeout": "300s",
      "encode-timeout": "60s",
      "decode-first-byte-timeout": "300s",
      "trust-client-control-members": false,
      "allow-path": [],
      "body-limit": 67_108_864,
      "drain-timeout": "60s",
      "kv-params-dialect": "seed",
      "sglang-bootstrap-port": 8998,
      "rotate-encoders": false,
      "pod-ip": "",
      "log-level": "info",
      "allow-endpoints": "",
      "allow-port": [],
      "body-timeout": "120s",
      "client-idle-timeout": "300s",
      "max-buffered-bytes": 1_073_741_824,
      "max-media-items": 256,
    });
  });

  it("C-CFG-02: the five KV connectors are accepted, a sixth is refused with the list", () => {
    for (const name of KV_CONNECTORS) expect(options(`--kv-connector=${name}`).kvConnector).toBe(name);
    const message = refusal(["--kv-connector=lmcache"]);
    expect(message).toContain("--kv-connector");
    for (const name of KV_CONNECTORS) expect(message).toContain(name);
  });

  it("allowed ports are ports, repeated and comma-mixed", () => {
    expect(options("--allow-port=8001, 8002", "--allow-port=8003").allowPorts).toEqual([8001, 8002, 8003]);
    for (const bad of ["x", "0", "65536", "1.5"]) expect(refusal([`--allow-port=${bad}`])).toMatch(/^--allow-port: /);
  });

  it("C-CFG-03: an unknown EC connector is refused with the two names", () => {
    expect(options("--ec-connector=ec-example").ecConnector).toBe("ec-example");
    expect(refusal(["--ec-connector=ec-cpu"])).toMatch(/--ec-connector.*ec-example, ec-nixl/);
  });

  it("C-CFG-04: a bad TLS stage is refused naming the three stages", () => {
    expect(refusal(["--enable-tls=prefiller,bad"])).toMatch(/--enable-tls.*"bad".*prefiller, decoder, encoder/);
    expect(refusal(["--tls-insecure-skip-verify=bad"])).toMatch(/--tls-insecure-skip-verify.*prefiller, decoder, encoder/);
  });

  it("C-CFG-05: stages repeated and comma-mixed are united", () => {
    expect(options("--enable-tls=prefiller, decoder", "--enable-tls=encoder", "--enable-tls=decoder").enableTls).toEqual(["prefiller", "decoder", "encoder"]);
  });

  it("C-CFG-06: SSRF protection without a pool is refused", () => {
    expect(refusal(["--enable-ssrf-protection"])).toBe("--enable-ssrf-protection: needs --inference-pool or --allow-endpoints");
  });

  it("C-CFG-07: pool names", () => {
    expect(options("--inference-pool=a/b").inferencePool).toEqual({ namespace: "a", name: "b" });
    expect(options("--inference-pool=b").inferencePool).toEqual({ namespace: "default", name: "b" });
    expect(refusal(["--inference-pool=a/b/c"])).toContain("--inference-pool");
    expect(refusal(["--inference-pool=/b"])).toContain("--inference-pool");
    expect(refusal(["--inference-pool=a/"])).toContain("--inference-pool");
  });

  it("C-CFG-08: data-parallel-size below 1 is refused", () => {
    expect(refusal(["--data-parallel-size=0"])).toContain("--data-parallel-size");
    expect(refusal(["--data-parallel-size=-1"])).toContain("--data-parallel-size");
  });

  it("C-CFG-09: bad ports are refused by the flag's name", () => {
    for (const value of ["abc", "0", "65536", "-1", "80.5", ""]) expect(refusal([`--port=${value}`])).toMatch(/^--port: /);
    expect(refusal(["--model-server-port=abc"])).toMatch(/^--model-server-port: /);
    expect(refusal(["--vllm-port=0"])).toMatch(/^--vllm-port: /);
  });

  it("C-CFG-10: the last rank's port must exist", () => {
    expect(refusal(["--port=65535", "--data-parallel-size=2"])).toMatch(/^--port: .*65536/);
    expect(refusal(["--model-server-port=65535", "--data-parallel-size=2"])).toMatch(/^--model-server-port: /);
    expect(options("--port=65534", "--data-parallel-size=2").port).toBe(65534);
  });

  it("a sidecar that would be its own engine is refused by the flags' names", () => {
    expect(refusal(["--port=8200"])).toBe("--model-server-port: 8200 is --port too: at --decoder-host localhost the sidecar would ask itself");
    expect(refusal(["--port=9000", "--vllm-port=9000", "--decoder-host=127.0.0.1"])).toMatch(/^--vllm-port: 9000 is --port too/);
    expect(refusal(["--port=8199", "--data-parallel-size=2"])).toBe("--model-server-port: 8200 and --port 8199 overlap with --data-parallel-size 2: at --decoder-host localhost the sidecar would ask itself");
    for (const argv of [["--decoder-host=[::1]"], ["--decoder-host=10.0.0.7", "--pod-ip=10.0.0.7"], ["--decoder-host=10.0.0.7", "--listen-address=10.0.0.7"], ["--listen-address=127.0.0.1"], ["--listen-address=0.0.0.0"]]) {
      expect(refusal(["--port=8200", ...argv])).toMatch(/^--model-server-port: /);
    }
    for (const argv of [["--decoder-host=engine.test"], ["--decoder-host=10.0.0.8", "--pod-ip=10.0.0.7"], ["--listen-address=10.0.0.7"], ["--listen-address=127.0.0.2", "--decoder-host=127.0.0.1"]]) expect(options("--port=8200", ...argv).port).toBe(8200);
    expect(options("--port=8198", "--data-parallel-size=2").port).toBe(8198);
  });

  it("C-CFG-11: p2p ports, with ranks", () => {
    expect(refusal(["--p2p-connector-port=70000"])).toMatch(/^--p2p-connector-port: /);
    expect(refusal(["--p2p-connector-port=65533", "--data-parallel-size=4"])).toMatch(/^--p2p-connector-port: /);
    expect(options("--p2p-connector-port=65532", "--data-parallel-size=4").p2pConnectorPort).toBe(65532);
  });

  it("C-CFG-12: p2p pull only with nixlv2", () => {
    expect(refusal(["--enable-p2p-pull", "--kv-connector=shared-storage"])).toMatch(/^--enable-p2p-pull: only with/);
    expect(refusal(["--enable-p2p-pull", "--kv-connector=offloading"])).toMatch(/^--enable-p2p-pull: only with/);
    expect(options("--enable-p2p-pull").enableP2pPull).toBe(true);
  });

  it("C-CFG-13: retries need a backoff", () => {
    expect(refusal(["--prefill-max-retries=1", "--prefill-retry-backoff=0s"])).toMatch(/^--prefill-retry-backoff: /);
    expect(options("--prefill-retry-backoff=0s").prefillRetryBackoffMs).toBe(0);
  });

  it("C-CFG-14: negative chunk size and mooncake port 0 are refused", () => {
    expect(refusal(["--decode-chunk-size=-1"])).toMatch(/^--decode-chunk-size: /);
    expect(refusal(["--mooncake-bootstrap-port=0"])).toMatch(/^--mooncake-bootstrap-port: /);
  });

  it("C-CFG-15: inline YAML with all keys overrides every default", () => {
    const parsed = describeOptions(options("--configuration", YAML_ALL));
    const defaults = describeOptions(options());
    const same = Object.keys(parsed).filter((key) => JSON.stringify(parsed[key]) === JSON.stringify(defaults[key]));
    // These cannot be set in this document: the first two would refuse the others, the rest have no other value that may stand beside them.
    expect(same.sort()).toEqual(["data-parallel-size", "decode-chunk-size", "enable-p2p-pull", "enable-ssrf-protection", "kv-connector"]);
    expect(parsed["prefill-retry-backoff"]).toBe("50ms");
    expect(parsed["enable-tls"]).toEqual(["prefiller", "decoder"]);
  });

  it("C-CFG-15: the same from a file, as JSON, with other case in the keys", () => {
    const parsed = options("--configuration-file", file('{"PORT": 9100, "Prefill-Max-Retries": 2, "secure-proxy": false}'));
    expect([parsed.port, parsed.prefillMaxRetries, parsed.secureProxy]).toEqual([9100, 2, false]);
  });

  it("C-CFG-16: typed flags win over YAML, also an explicit false", () => {
    const parsed = options("--port=9999", "--enable-prefiller-sampling=false", "--enable-tls=encoder", "--configuration", YAML_ALL);
    expect([parsed.port, parsed.enablePrefillerSampling, parsed.enableTls, parsed.modelServerPort]).toEqual([9999, false, ["encoder"], 9200]);
  });

  it("YAML wins over the environment, which wins over the default; zero counts for retries only", () => {
    const env = { P2P_CONNECTOR_PORT: "7001", MOONCAKE_BOOTSTRAP_PORT: "7002" };
    const parsed = parseOptions(["--configuration", "p2p-connector-port: 7003\nmooncake-bootstrap-port: 0\nprefill-max-retries: 0"], env).options;
    expect([parsed.p2pConnectorPort, parsed.mooncakeBootstrapPort, parsed.prefillMaxRetries]).toEqual([7003, 7002, 0]);
  });

  it("C-CFG-17: unknown, removed, repeated keys, broken YAML and two sources are refused", () => {
    expect(refusal(["--configuration", "prot: 1"])).toContain('"prot"');
    expect(refusal(["--configuration", "connector: nixlv2"])).toContain('"connector"');
    expect(refusal(["--configuration", "port: 1\nport: 2"])).toMatch(/^--configuration: /);
    expect(refusal(["--configuration", "port: 1\nPORT: 2"])).toContain("given twice");
    expect(refusal(["--configuration", "port: [1"])).toMatch(/^--configuration: /);
    expect(refusal(["--configuration", "- port"])).toMatch(/^--configuration: .*mapping/);
    expect(refusal(["--configuration", "port: abc"])).toMatch(/^--configuration: port: /);
    expect(refusal(["--configuration", "port: 1", "--configuration-file", "/x"])).toMatch(/--configuration and --configuration-file/);
    expect(refusal(["--configuration-file", "/nonexistent/file"])).toMatch(/^--configuration-file: cannot read .*ENOENT/);
  });

  it("C-CFG-18: an unreadable backoff in YAML is a warning and the default stays", () => {
    const parsed = parseOptions(["--configuration", "prefill-retry-backoff: xx"], {});
    expect(parsed.options.prefillRetryBackoffMs).toBe(200);
    expect(parsed.warnings.join("\n")).toMatch(/prefill-retry-backoff.*"xx".*200ms/);
  });

  it("C-CFG-19: --vllm-port beats YAML's model-server-port, with a note", () => {
    const parsed = parseOptions(["--vllm-port=9001", "--configuration", "model-server-port: 8203"], {});
    expect(parsed.options.modelServerPort).toBe(9001);
    expect(parsed.warnings.join()).toContain("--vllm-port is deprecated");
  });

  it("C-CFG-20: --model-server-port wins over the alias", () => {
    expect(options("--vllm-port=9001", "--model-server-port=9002").modelServerPort).toBe(9002);
    expect(options("--configuration", "vllm-port: 9003").modelServerPort).toBe(9003);
    expect(options("--configuration", "vllm-port: 9003\nmodel-server-port: 9004").modelServerPort).toBe(9004);
  });

  it("C-CFG-21: environment values are used, bad ones ignored", () => {
    const good = parseOptions([], { ENABLE_PREFILLER_SAMPLING: "T", INFERENCE_POOL: "ns/p", P2P_CONNECTOR_PORT: "7001" }).options;
    expect([good.enablePrefillerSampling, good.inferencePool?.name, good.p2pConnectorPort]).toEqual([true, "p", 7001]);
    const ports = parseOptions([], { MOONCAKE_BOOTSTRAP_PORT: "7002", SGLANG_BOOTSTRAP_PORT: "7003", POD_IP: "10.0.0.10" }).options;
    expect([ports.mooncakeBootstrapPort, ports.sglangBootstrapPort, ports.podIp]).toEqual([7002, 7003, "10.0.0.10"]);
    const bad = parseOptions([], { ENABLE_PREFILLER_SAMPLING: "yes", P2P_CONNECTOR_PORT: "many" }).options;
    expect([bad.enablePrefillerSampling, bad.p2pConnectorPort]).toEqual([false, 7777]);
  });

  it("C-CFG-22: every refusal is one line that names the option", () => {
    const wrong: [string[], string][] = [
      [["--connector=nixlv2"], "--connector"],
      [["--decoder-use-tls"], "--decoder-use-tls"],
      [["--port"], "--port"],
      [["--secure-proxy=maybe"], "--secure-proxy"],
      [["--prefill-max-retries=x"], "--prefill-max-retries"],
      [["--prefill-max-retries=-1"], "--prefill-max-retries"],
      [["--prefill-timeout=5"], "--prefill-timeout"],
      [["--prefill-timeout=-5s"], "--prefill-timeout"],
      [["--encode-timeout=900h"], "--encode-timeout"],
      [["--on-stage-failure=retry"], "--on-stage-failure"],
      [["--metrics-port=65536"], "--metrics-port"],
      [["--body-limit=0"], "--body-limit"],
      [["--allow-path=v1"], "--allow-path"],
      [["--max-buffered-bytes=67108863"], "--max-buffered-bytes"],
      [["--max-media-items=0"], "--max-media-items"],
      [["--max-media-items=8192"], "--max-media-items"],
      [["--log-level=loud"], "--log-level"],
      [["--decoder-host=a b"], "--decoder-host"],
      [["--kv-params-dialect=v3"], "--kv-params-dialect"],
      [["--sglang-bootstrap-port=0"], "--sglang-bootstrap-port"],
      [["--pod-ip=a b"], "--pod-ip"],
      [["-v"], "-v"],
    ];
    for (const [argv, name] of wrong) {
      const message = refusal(argv);
      expect(message).toContain(name);
      expect(message).not.toContain("\n");
    }
  });

  it("C-CFG-23: offloading with two ranks is refused in the seed's dialect", () => {
    expect(refusal(["--kv-connector=offloading", "--data-parallel-size=2"])).toMatch(/--data-parallel-size.*offloading/);
    expect(options("--kv-connector=offloading", "--data-parallel-size=2", "--kv-params-dialect=v2").dataParallelSize).toBe(2);
  });

  it("takes Go's spellings of booleans", () => {
    expect([options("--secure-proxy=false").secureProxy, options("--secure-proxy=0").secureProxy, options("--secure-proxy").secureProxy]).toEqual([false, false, true]);
  });

  it("knows whether a configuration is named", () => {
    expect([["--configuration=x"], ["--port=1", "--configuration-file", "x"], ["--configuration"], ["--port=1"]].map(namesConfiguration)).toEqual([true, true, true, false]);
  });

  it("prints help", () => {
    expect(() => parseOptions(["--help"], {})).toThrow(HelpRequested);
  });
});
