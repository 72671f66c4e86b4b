import { readFileSync } from "node:fs";
import { Command, CommanderError, Option } from "commander";
import { unbracketed } from "./candidates.js";
import { formatDuration, MAX_TIMER_MS, parseDurationMs } from "./duration.js";

/** KV connectors (sidecar §1.1), each one file under connectors/. */
export const KV_CONNECTORS = ["nixlv2", "shared-storage", "sglang", "mooncake", "offloading"] as const;
export type KvConnectorName = (typeof KV_CONNECTORS)[number];

/** How the offloading connector's parameters are keyed by role: the seed's names, or the ones that engines took up later (sidecar §10.1). */
export const KV_PARAMS_DIALECTS = ["seed", "v2"] as const;
export type KvParamsDialect = (typeof KV_PARAMS_DIALECTS)[number];

export const EC_CONNECTORS = ["ec-example", "ec-nixl"] as const;
export type EcConnectorName = (typeof EC_CONNECTORS)[number];

export const TLS_STAGES = ["prefiller", "decoder", "encoder"] as const;
export type TlsStage = (typeof TLS_STAGES)[number];

export const STAGE_FAILURE_POLICIES = ["fail", "local"] as const;
export type StageFailurePolicy = (typeof STAGE_FAILURE_POLICIES)[number];

export const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

const POOL_GROUPS = ["inference.networking.k8s.io", "inference.networking.x-k8s.io"] as const;

export type Kind =
  | "string"
  | "int"
  /** An integer that stands in the command line as text, so that the message can name the flag (the reference's `--port`). */
  | "portText"
  | "bool"
  | "duration"
  | "list";

export interface Definition {
  readonly name: string;
  readonly kind: Kind;
  readonly default: string | number | boolean | readonly string[];
  readonly env?: string;
  /** An explicit zero in YAML counts, where it is "absent" for the other numbers (sidecar §1.3). */
  readonly yamlZeroCounts?: boolean;
  readonly help: string;
}

/**
 * The one table of the sidecar's settings: flag, YAML key, environment name, default and help come from here. Rows above the rule are the reference's
 * (sidecar §1.1), rows below are ours.
 */
export const DEFINITIONS = [
  { name: "port", kind: "portText", default: "8000", help: "listen port" },
  { name: "model-server-port", kind: "portText", default: "", help: "port of the local engine (8200)" },
  { name: "vllm-port", kind: "portText", default: "8200", help: "deprecated alias of --model-server-port" },
  { name: "data-parallel-size", kind: "int", default: 1, help: "number of local engine ranks" },
  { name: "kv-connector", kind: "string", default: "nixlv2", help: `KV connector: ${KV_CONNECTORS.join(", ")}` },
  { name: "ec-connector", kind: "string", default: "", help: `encoder connector: ${EC_CONNECTORS.join(", ")}; none: no encode stage` },
  { name: "mooncake-bootstrap-port", kind: "int", default: 8998, env: "MOONCAKE_BOOTSTRAP_PORT", help: "mooncake bootstrap port of prefill pods" },
  { name: "p2p-connector-port", kind: "int", default: 7777, env: "P2P_CONNECTOR_PORT", help: "p2p tier port of prefill pods" },
  { name: "enable-p2p-pull", kind: "bool", default: false, help: "honour x-kv-cache-source-host-port with nixlv2" },
  {
    name: "enable-prefiller-sampling",
    kind: "bool",
    default: false,
    env: "ENABLE_PREFILLER_SAMPLING",
    help: "take a random prefill candidate instead of the first",
  },
  { name: "enable-tls", kind: "list", default: [], help: `stages reached by TLS: ${TLS_STAGES.join(", ")} (comma list, repeatable)` },
  { name: "tls-insecure-skip-verify", kind: "list", default: [], help: "stages whose certificates are not verified (comma list, repeatable)" },
  { name: "secure-proxy", kind: "bool", default: true, help: "TLS on the sidecar's own listener" },
  { name: "cert-path", kind: "string", default: "", help: "directory with tls.crt and tls.key; none: self-signed" },
  { name: "enable-ssrf-protection", kind: "bool", default: false, help: "allow only hosts of the inference pool" },
  { name: "inference-pool", kind: "string", default: "", env: "INFERENCE_POOL", help: "namespace/name or name of the inference pool" },
  { name: "pool-group", kind: "string", default: POOL_GROUPS[0], help: "API group of the inference pool" },
  { name: "max-idle-conns-per-host", kind: "int", default: 1024, help: "idle connections kept per upstream host" },
  { name: "prefill-max-retries", kind: "int", default: 0, yamlZeroCounts: true, help: "further prefill attempts after 502, 503, 504 or a broken connection" },
  { name: "prefill-retry-backoff", kind: "duration", default: 200, help: "wait before a prefill retry" },
  { name: "decode-chunk-size", kind: "int", default: 0, help: "tokens per chunk of chunked decode; 0: off" },
  { name: "tracing", kind: "bool", default: false, help: "OpenTelemetry traces" },
  { name: "metrics-port", kind: "int", default: 0, help: "port of the sidecar's own /metrics; 0: off" },
  // ---- ours ----
  { name: "listen-address", kind: "string", default: "", help: "address to listen on (all interfaces)" },
  { name: "decoder-host", kind: "string", default: "localhost", help: "host of the local engine" },
  { name: "on-stage-failure", kind: "string", default: "fail", help: "a failed encode or prefill stage: fail the request, or go on with what the local engine can do" },
  { name: "prefill-timeout", kind: "duration", default: 300_000, help: "deadline of the prefill stage, retries included; 0: none" },
  { name: "encode-timeout", kind: "duration", default: 60_000, help: "deadline of one encode leg; 0: none" },
  { name: "decode-first-byte-timeout", kind: "duration", default: 300_000, help: "deadline for the first byte of the engine's answer; 0: none" },
  { name: "trust-client-control-members", kind: "bool", default: false, help: "leave control members that clients send in their bodies" },
  { name: "allow-path", kind: "list", default: [], help: "further paths to pass through (comma list, repeatable; a trailing /* allows what is below)" },
  { name: "body-limit", kind: "int", default: 64 * 1024 * 1024, help: "largest request body in bytes, also after decompression" },
  { name: "drain-timeout", kind: "duration", default: 60_000, help: "longest wait for open requests after SIGTERM" },
  { name: "kv-params-dialect", kind: "string", default: "seed", help: `key names of offloading parameters: ${KV_PARAMS_DIALECTS.join(", ")}` },
  { name: "sglang-bootstrap-port", kind: "int", default: 8998, env: "SGLANG_BOOTSTRAP_PORT", help: "sglang bootstrap port of prefill pods" },
  { name: "rotate-encoders", kind: "bool", default: false, help: "begin each request's media items at another entry of the encoder list" },
  { name: "pod-ip", kind: "string", default: "", env: "POD_IP", help: "own address in routing headers; none: the one that a connection came to" },
  { name: "log-level", kind: "string", default: "info", help: LOG_LEVELS.join(", ") },
  { name: "allow-endpoints", kind: "string", default: "", help: "file with the endpoints that routing headers may name, watched: host:port or host per line, or an endpoints file" },
  { name: "allow-port", kind: "list", default: [], help: "ports allowed on every allowed host, beside its own (comma list, repeatable)" },
  { name: "body-timeout", kind: "duration", default: 120_000, help: "longest time that a request's body may take to arrive; 0: no limit" },
  { name: "client-idle-timeout", kind: "duration", default: 300_000, help: "longest time that a client may leave its answer unread; 0: no limit" },
  { name: "max-buffered-bytes", kind: "int", default: 1024 * 1024 * 1024, help: "most bytes of request bodies that are held at once; 503 above it" },
  { name: "max-media-items", kind: "int", default: 256, help: "most media items of a request that encoders are asked for" },
] as const satisfies readonly Definition[];

export type OptionName = (typeof DEFINITIONS)[number]["name"];
type RawValue = string | number | boolean | readonly string[];
/** What one source says; names that it leaves out are absent. */
export type Layer = Partial<Record<OptionName, RawValue>>;

/** What the sidecar runs with: checked, complete, one value per setting. Times are in milliseconds, sizes in bytes. */
export interface SidecarOptions {
  readonly port: number;
  readonly modelServerPort: number;
  readonly dataParallelSize: number;
  readonly kvConnector: KvConnectorName;
  readonly ecConnector: EcConnectorName | "";
  readonly mooncakeBootstrapPort: number;
  readonly p2pConnectorPort: number;
  readonly enableP2pPull: boolean;
  readonly enablePrefillerSampling: boolean;
  readonly enableTls: readonly TlsStage[];
  readonly tlsInsecureSkipVerify: readonly TlsStage[];
  readonly secureProxy: boolean;
  readonly certPath: string;
  readonly enableSsrfProtection: boolean;
  /** Null: no pool given. */
  readonly inferencePool: { readonly namespace: string; readonly name: string } | null;
  readonly poolGroup: string;
  readonly maxIdleConnsPerHost: number;
  readonly prefillMaxRetries: number;
  readonly prefillRetryBackoffMs: number;
  readonly decodeChunkSize: number;
  readonly tracing: boolean;
  /** 0: no metrics listener. */
  readonly metricsPort: number;
  /** `""`: all interfaces. */
  readonly listenAddress: string;
  readonly decoderHost: string;
  readonly onStageFailure: StageFailurePolicy;
  readonly prefillTimeoutMs: number;
  readonly encodeTimeoutMs: number;
  readonly decodeFirstByteTimeoutMs: number;
  readonly trustClientControlMembers: boolean;
  readonly allowPaths: readonly string[];
  readonly bodyLimitBytes: number;
  readonly drainTimeoutMs: number;
  readonly kvParamsDialect: KvParamsDialect;
  readonly sglangBootstrapPort: number;
  readonly rotateEncoders: boolean;
  /** Without brackets; `""`: not given. */
  readonly podIp: string;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** `""`: no such file. */
  readonly allowEndpoints: string;
  readonly allowPorts: readonly number[];
  readonly bodyTimeoutMs: number;
  readonly clientIdleTimeoutMs: number;
  readonly maxBufferedBytes: number;
  readonly maxMediaItems: number;
}

/**
 * Reads the text of a configuration. In a module of its own (options-yaml.ts), since few sidecars have one and its libraries hold a fifth of their memory.
 *
 * @throws OptionsError
 */
export type YamlReader = (text: string, source: string, warnings: string[]) => Layer;

/** A refused configuration: one line that names the option. The process ends with exit code 2 (CFG-22). */
export class OptionsError extends Error {}

/** `--help` was asked for: `text` goes to stdout, exit code 0. */
export class HelpRequested extends Error {
  constructor(readonly text: string) {
    super("help requested");
  }
}

export interface ParsedOptions {
  readonly options: SidecarOptions;
  /** Deprecation notes and ignored values, one line each, for stderr. */
  readonly warnings: readonly string[];
  /** `--print-config` was given: print the configuration and end. */
  readonly printConfig: boolean;
}

/** The effective configuration under the names of the flags, durations as text: what is logged at the start and printed by `--print-config`. */
export function describeOptions(options: SidecarOptions): Record<string, unknown> {
  return {
    port: options.port,
    "model-server-port": options.modelServerPort,
    "data-parallel-size": options.dataParallelSize,
    "kv-connector": options.kvConnector,
    "ec-connector": options.ecConnector,
    "mooncake-bootstrap-port": options.mooncakeBootstrapPort,
    "p2p-connector-port": options.p2pConnectorPort,
    "enable-p2p-pull": options.enableP2pPull,
    "enable-prefiller-sampling": options.enablePrefillerSampling,
    "enable-tls": options.enableTls,
    "tls-insecure-skip-verify": options.tlsInsecureSkipVerify,
    "secure-proxy": options.secureProxy,
    "cert-path": options.certPath,
    "enable-ssrf-protection": options.enableSsrfProtection,
    "inference-pool": options.inferencePool === null ? "" : `${options.inferencePool.namespace}/${options.inferencePool.name}`,
    "pool-group": options.poolGroup,
    "max-idle-conns-per-host": options.maxIdleConnsPerHost,
    "prefill-max-retries": options.prefillMaxRetries,
    "prefill-retry-backoff": formatDuration(options.prefillRetryBackoffMs),
    "decode-chunk-size": options.decodeChunkSize,
    tracing: options.tracing,
    "metrics-port": options.metricsPort,
    "listen-address": options.listenAddress,
    "decoder-host": options.decoderHost,
    "on-stage-failure": options.onStageFailure,
    "prefill-timeout": formatDuration(options.prefillTimeoutMs),
    "encode-timeout": formatDuration(options.encodeTimeoutMs),
    "decode-first-byte-timeout": formatDuration(options.decodeFirstByteTimeoutMs),
    "trust-client-control-members": options.trustClientControlMembers,
    "allow-path": options.allowPaths,
    "body-limit": options.bodyLimitBytes,
    "drain-timeout": formatDuration(options.drainTimeoutMs),
    "kv-params-dialect": options.kvParamsDialect,
    "sglang-bootstrap-port": options.sglangBootstrapPort,
    "rotate-encoders": options.rotateEncoders,
    "pod-ip": options.podIp,
    "log-level": options.logLevel,
    "allow-endpoints": options.allowEndpoints,
    "allow-port": options.allowPorts,
    "body-timeout": formatDuration(options.bodyTimeoutMs),
    "client-idle-timeout": formatDuration(options.clientIdleTimeoutMs),
    "max-buffered-bytes": options.maxBufferedBytes,
    "max-media-items": options.maxMediaItems,
  };
}

/**
 * Reads flags, environment and configuration file into one checked set of options. Precedence: typed flag, YAML, environment, default (CFG-16).
 *
 * @param readYaml needed where {@link namesConfiguration}
 * @throws OptionsError with one line that names the option
 * @throws HelpRequested for `--help`
 */
export function parseOptions(argv: readonly string[], env: Readonly<Record<string, string | undefined>>, readYaml?: YamlReader): ParsedOptions {
  const warnings: string[] = [];
  const { flags, inline, file, printConfig } = readFlags(argv);
  if (inline !== undefined && file !== undefined) throw new OptionsError("--configuration and --configuration-file exclude each other");
  let document: { readonly text: string; readonly source: string } | null = null;
  if (inline !== undefined) document = { text: inline, source: "--configuration" };
  if (file !== undefined) document = { text: readConfigurationFile(file), source: "--configuration-file" };
  if (document !== null && readYaml === undefined) throw new OptionsError(`${document.source}: no reader for it`);
  const yaml = document === null || readYaml === undefined ? {} : readYaml(document.text, document.source, warnings);
  const merged = merge(flags, yaml, readEnvironment(env));
  if (flags["vllm-port"] !== undefined) warnings.push("--vllm-port is deprecated: use --model-server-port");
  const options = validate(merged, modelServerPort(flags, yaml));
  return { options, warnings, printConfig };
}

/** Whether the flags name a configuration, inline or as a file. */
export function namesConfiguration(argv: readonly string[]): boolean {
  return argv.some((argument) => /^--configuration(?:-file)?(?:=|$)/.test(argument));
}

interface FlagLayer {
  readonly flags: Layer;
  readonly inline: string | undefined;
  readonly file: string | undefined;
  readonly printConfig: boolean;
}

function readFlags(argv: readonly string[]): FlagLayer {
  let help = "";
  const command = new Command("crosspoint-sidecar")
    .description("Crosspoint decode sidecar: carries out encode, prefill and decode for the engine beside it")
    .allowExcessArguments(false)
    .exitOverride()
    .configureOutput({
      writeErr: () => undefined,
      writeOut: (text) => {
        help += text;
      },
    });
  for (const definition of DEFINITIONS) command.addOption(flagOf(definition));
  command.addOption(new Option("--configuration <text>", "settings as YAML or JSON text"));
  command.addOption(new Option("--configuration-file <path>", "settings from a YAML or JSON file"));
  command.addOption(new Option("--print-config", "print the effective configuration and end").default(false));
  try {
    command.parse([...argv], { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.code === "commander.helpDisplayed") throw new HelpRequested(help);
      throw new OptionsError(error.message.replace(/^error: /, "").replaceAll("\n", " "));
    }
    throw error;
  }
  const values = command.opts<Record<string, RawValue | undefined>>();
  const flags: Layer = {};
  for (const { name } of DEFINITIONS) {
    const value = values[camelCase(name)];
    if (value !== undefined) flags[name] = value;
  }
  const text = (value: RawValue | undefined): string | undefined => (typeof value === "string" ? value : undefined);
  return { flags, inline: text(values["configuration"]), file: text(values["configurationFile"]), printConfig: values["printConfig"] === true };
}

function flagOf(definition: Definition): Option {
  const { name, kind, help } = definition;
  switch (kind) {
    case "bool":
      // Go's booleans: `--name`, `--name=true`, `--name=false`.
      return new Option(`--${name} [boolean]`, help).preset("true").argParser((text: string) => {
        const value = parseGoBoolean(text);
        if (value === null) throw new OptionsError(`--${name}: "${text}" is not a boolean`);
        return value;
      });
    case "int":
      return new Option(`--${name} <integer>`, help).argParser((text: string) => {
        if (!/^[+-]?\d+$/.test(text) || !Number.isSafeInteger(Number(text))) throw new OptionsError(`--${name}: "${text}" is not an integer`);
        return Number(text);
      });
    case "duration":
      return new Option(`--${name} <duration>`, help).argParser((text: string) => {
        const ms = parseDurationMs(text);
        if (ms === null) throw new OptionsError(`--${name}: "${text}" is not a duration (like 200ms or 1m30s)`);
        return ms;
      });
    case "list":
      return new Option(`--${name} <list>`, help).argParser((text: string, previous: string[] | undefined) => [...(previous ?? []), ...splitList(text)]);
    case "portText":
    case "string":
      return new Option(`--${name} <text>`, help);
  }
}

function splitList(text: string): string[] {
  return text
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
}

function camelCase(name: string): string {
  return name.replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function readConfigurationFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
    throw new OptionsError(`--configuration-file: cannot read ${path} (${code})`);
  }
}

/** Environment defaults; values that do not parse are ignored (CFG-21). */
function readEnvironment(env: Readonly<Record<string, string | undefined>>): Layer {
  const layer: Layer = {};
  for (const definition of DEFINITIONS as readonly (Definition & { name: OptionName })[]) {
    const text = definition.env === undefined ? undefined : env[definition.env];
    if (text === undefined || text === "") continue;
    if (definition.kind === "string") layer[definition.name] = text;
    if (definition.kind === "int" && /^[+-]?\d+$/.test(text)) layer[definition.name] = Number(text);
    if (definition.kind === "bool") {
      const value = parseGoBoolean(text);
      if (value !== null) layer[definition.name] = value;
    }
  }
  return layer;
}

/** Go's `strconv.ParseBool`. */
function parseGoBoolean(text: string): boolean | null {
  if (["1", "t", "T", "TRUE", "true", "True"].includes(text)) return true;
  if (["0", "f", "F", "FALSE", "false", "False"].includes(text)) return false;
  return null;
}

function merge(...layers: readonly Layer[]): Required<Layer> {
  const merged: Layer = {};
  for (const { name, default: fallback } of DEFINITIONS) merged[name] = layers.find((layer) => layer[name] !== undefined)?.[name] ?? fallback;
  return merged as Required<Layer>;
}

/** `--model-server-port`, `--vllm-port`, YAML `model-server-port`, YAML `vllm-port`, 8200: in this order (CFG-19, CFG-20). */
function modelServerPort(flags: Layer, yaml: Layer): { readonly flag: string; readonly text: string } {
  const typed = flags["model-server-port"];
  if (typed !== undefined && typed !== "") return { flag: "--model-server-port", text: String(typed) };
  const alias = flags["vllm-port"];
  if (alias !== undefined) return { flag: "--vllm-port", text: String(alias) };
  const fromYaml = yaml["model-server-port"];
  if (fromYaml !== undefined) return { flag: "model-server-port", text: String(fromYaml) };
  const aliasFromYaml = yaml["vllm-port"];
  if (aliasFromYaml !== undefined) return { flag: "vllm-port", text: String(aliasFromYaml) };
  return { flag: "--model-server-port", text: "8200" };
}

/** The scanner lists 8192 items of a body and no further one: below that none is missing. */
const MAX_MEDIA_ITEMS = 8191;

/** Names and addresses of either family. */
const HOST = /^[A-Za-z0-9._:%-]+$/;

/** Checks in the reference's order, so that the same mistake is named first (sidecar §1.2); our own settings come last. */
function validate(raw: Required<Layer>, engine: { readonly flag: string; readonly text: string }): SidecarOptions {
  const int = (name: OptionName): number => Number(raw[name]);
  const text = (name: OptionName): string => String(raw[name]);
  const bool = (name: OptionName): boolean => raw[name] === true;
  const list = (name: OptionName): readonly string[] => raw[name] as readonly string[];

  const ranks = int("data-parallel-size");
  if (ranks < 1) throw new OptionsError(`--data-parallel-size: ${String(ranks)} is not at least 1`);
  const port = portOf("--port", text("port"), ranks);
  const enginePort = portOf(engine.flag, engine.text, ranks);
  const kvConnector = oneOf("--kv-connector", text("kv-connector"), KV_CONNECTORS);
  const ecConnector = text("ec-connector") === "" ? "" : oneOf("--ec-connector", text("ec-connector"), EC_CONNECTORS);
  const enableTls = stagesOf("--enable-tls", list("enable-tls"));
  const tlsInsecureSkipVerify = stagesOf("--tls-insecure-skip-verify", list("tls-insecure-skip-verify"));
  const inferencePool = poolOf(text("inference-pool"));
  const backoffMs = int("prefill-retry-backoff");
  const retries = int("prefill-max-retries");
  if (retries < 0) throw new OptionsError(`--prefill-max-retries: ${String(retries)} is negative`);
  if (retries > 0 && backoffMs <= 0) throw new OptionsError("--prefill-retry-backoff: must be above 0 when --prefill-max-retries is set");
  if (backoffMs < 0) throw new OptionsError("--prefill-retry-backoff: is negative");
  const chunk = int("decode-chunk-size");
  if (chunk < 0) throw new OptionsError(`--decode-chunk-size: ${String(chunk)} is negative`);
  const mooncakePort = int("mooncake-bootstrap-port");
  requirePort("--mooncake-bootstrap-port", mooncakePort);
  const p2pPort = int("p2p-connector-port");
  requirePort("--p2p-connector-port", p2pPort);
  if (p2pPort + ranks - 1 > 65535) throw new OptionsError(`--p2p-connector-port: ${String(p2pPort)} leaves no port for rank ${String(ranks - 1)}`);
  if (bool("enable-p2p-pull") && kvConnector !== "nixlv2") throw new OptionsError(`--enable-p2p-pull: only with --kv-connector=nixlv2, not ${kvConnector}`);
  const dialect = oneOf("--kv-params-dialect", text("kv-params-dialect"), KV_PARAMS_DIALECTS);
  if (kvConnector === "offloading" && ranks > 1 && dialect === "seed") {
    // CFG-23: in the seed's dialect every rank would bind the same p2p port.
    throw new OptionsError("--data-parallel-size: must be 1 with --kv-connector=offloading and --kv-params-dialect=seed");
  }
  if (bool("enable-ssrf-protection") && inferencePool === null && text("allow-endpoints") === "") throw new OptionsError("--enable-ssrf-protection: needs --inference-pool or --allow-endpoints");
  const poolGroup = text("pool-group");
  if (bool("enable-ssrf-protection")) oneOf("--pool-group", poolGroup, POOL_GROUPS);
  const metricsPort = int("metrics-port");
  if (metricsPort < 0 || metricsPort > 65535) throw new OptionsError(`--metrics-port: ${String(metricsPort)} is not between 0 and 65535`);

  const decoderHost = unbracketed(text("decoder-host"));
  if (!HOST.test(decoderHost)) throw new OptionsError(`--decoder-host: "${decoderHost}" is not a host name or address`);
  const listenAddress = unbracketed(text("listen-address"));
  if (Math.abs(port - enginePort) < ranks && listensAt(listenAddress, decoderHost, text("pod-ip").trim())) {
    const which = ranks === 1 ? `${String(enginePort)} is --port too` : `${String(enginePort)} and --port ${String(port)} overlap with --data-parallel-size ${String(ranks)}`;
    throw new OptionsError(`${engine.flag}: ${which}: at --decoder-host ${decoderHost} the sidecar would ask itself`);
  }
  const bodyLimit = int("body-limit");
  if (bodyLimit < 1) throw new OptionsError(`--body-limit: ${String(bodyLimit)} is not at least 1 byte`);
  const idle = int("max-idle-conns-per-host");
  const sglangPort = int("sglang-bootstrap-port");
  requirePort("--sglang-bootstrap-port", sglangPort);
  const podIp = unbracketed(text("pod-ip").trim());
  if (podIp !== "" && !HOST.test(podIp)) throw new OptionsError(`--pod-ip: "${podIp}" is not an address`);
  const maxBuffered = int("max-buffered-bytes");
  if (maxBuffered < bodyLimit) throw new OptionsError(`--max-buffered-bytes: ${String(maxBuffered)} is less than one body may have (--body-limit ${String(bodyLimit)})`);
  const maxMediaItems = int("max-media-items");
  if (maxMediaItems < 1 || maxMediaItems > MAX_MEDIA_ITEMS) throw new OptionsError(`--max-media-items: ${String(maxMediaItems)} is not between 1 and ${String(MAX_MEDIA_ITEMS)}`);
  const allowPaths = list("allow-path");
  for (const path of allowPaths) if (!path.startsWith("/")) throw new OptionsError(`--allow-path: "${path}" does not start with /`);

  return {
    port,
    modelServerPort: enginePort,
    dataParallelSize: ranks,
    kvConnector,
    ecConnector,
    mooncakeBootstrapPort: mooncakePort,
    p2pConnectorPort: p2pPort,
    enableP2pPull: bool("enable-p2p-pull"),
    enablePrefillerSampling: bool("enable-prefiller-sampling"),
    enableTls,
    tlsInsecureSkipVerify,
    secureProxy: bool("secure-proxy"),
    certPath: text("cert-path"),
    enableSsrfProtection: bool("enable-ssrf-protection"),
    inferencePool,
    poolGroup,
    // As the reference: nothing sensible falls back to the default.
    maxIdleConnsPerHost: idle <= 0 ? 1024 : idle,
    prefillMaxRetries: retries,
    prefillRetryBackoffMs: backoffMs,
    decodeChunkSize: chunk,
    tracing: bool("tracing"),
    metricsPort,
    listenAddress,
    decoderHost,
    onStageFailure: oneOf("--on-stage-failure", text("on-stage-failure"), STAGE_FAILURE_POLICIES),
    prefillTimeoutMs: timeoutOf("--prefill-timeout", int("prefill-timeout")),
    encodeTimeoutMs: timeoutOf("--encode-timeout", int("encode-timeout")),
    decodeFirstByteTimeoutMs: timeoutOf("--decode-first-byte-timeout", int("decode-first-byte-timeout")),
    trustClientControlMembers: bool("trust-client-control-members"),
    allowPaths,
    bodyLimitBytes: bodyLimit,
    drainTimeoutMs: timeoutOf("--drain-timeout", int("drain-timeout")),
    kvParamsDialect: dialect,
    sglangBootstrapPort: sglangPort,
    rotateEncoders: bool("rotate-encoders"),
    podIp,
    logLevel: oneOf("--log-level", text("log-level"), LOG_LEVELS),
    allowEndpoints: text("allow-endpoints"),
    allowPorts: list("allow-port").map(allowedPort),
    bodyTimeoutMs: timeoutOf("--body-timeout", int("body-timeout")),
    clientIdleTimeoutMs: timeoutOf("--client-idle-timeout", int("client-idle-timeout")),
    maxBufferedBytes: maxBuffered,
    maxMediaItems,
  };
}

/** Whether a listener at an address (`""`: all) is met by who connects to a host, as far as their spelling tells. */
function listensAt(listenAddress: string, host: string, podIp: string): boolean {
  const isLoopback = (name: string): boolean => /^(?:localhost|127(?:\.\d+){3}|::1)$/i.test(name);
  const isAny = (name: string): boolean => name === "0.0.0.0" || name === "::";
  if (listenAddress === "" || isAny(listenAddress)) return isLoopback(host) || isAny(host) || (podIp !== "" && host === podIp);
  const [listening, asked] = [listenAddress.toLowerCase(), host.toLowerCase()];
  return listening === asked || (isLoopback(listening) && (asked === "localhost" || listening === "localhost") && isLoopback(asked));
}

function allowedPort(text: string): number {
  if (!/^\d+$/.test(text)) throw new OptionsError(`--allow-port: "${text}" is not an integer`);
  requirePort("--allow-port", Number(text));
  return Number(text);
}

function portOf(flag: string, text: string, ranks: number): number {
  if (!/^[+-]?\d+$/.test(text)) throw new OptionsError(`${flag}: "${text}" is not an integer`);
  const port = Number(text);
  requirePort(flag, port);
  if (port + ranks - 1 > 65535) {
    throw new OptionsError(`${flag}: ${text} with --data-parallel-size ${String(ranks)} needs ports up to ${String(port + ranks - 1)}`);
  }
  return port;
}

function requirePort(flag: string, port: number): void {
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw new OptionsError(`${flag}: ${String(port)} is not between 1 and 65535`);
}

function oneOf<T extends string>(flag: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((candidate) => candidate === value);
  if (found === undefined) throw new OptionsError(`${flag}: "${value}" is not one of ${allowed.join(", ")}`);
  return found;
}

function stagesOf(flag: string, stages: readonly string[]): readonly TlsStage[] {
  return [...new Set(stages.flatMap(splitList).map((stage) => oneOf(flag, stage, TLS_STAGES)))];
}

function poolOf(text: string): { readonly namespace: string; readonly name: string } | null {
  if (text === "") return null;
  const parts = text.split("/");
  if (parts.length > 2) throw new OptionsError(`--inference-pool: "${text}" has more than one slash`);
  const [namespace, name] = parts.length === 2 ? parts : ["default", parts[0]];
  if (namespace === undefined || name === undefined || namespace === "" || name === "") {
    throw new OptionsError(`--inference-pool: "${text}" has an empty namespace or name`);
  }
  return { namespace, name };
}

function timeoutOf(flag: string, ms: number): number {
  if (ms < 0) throw new OptionsError(`${flag}: is negative`);
  if (ms > MAX_TIMER_MS) throw new OptionsError(`${flag}: ${formatDuration(ms)} is above ${formatDuration(MAX_TIMER_MS)}`);
  return ms;
}
