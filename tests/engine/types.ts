/**
 * The public types of the simulated engine. A reader who only drives engines from a test needs this file and `index.ts`.
 */

import type { EngineDirectory } from "./directory.js";
import type { ScriptQueue } from "./script.js";

/** What an engine process is started for. A mixed role serves each request as the stage that the request asks for. */
export type Role = "prefill" | "decode" | "encode" | "prefill-decode" | "encode-prefill-decode";

/** What one request asked an engine to do. */
export type Stage = "encode" | "prefill" | "decode";

/** How KV reaches a decoder. `nixl` pulls by the parameters of the prefill answer (real-engine §4); `none` knows no hand-off at all. */
export type KvConnectorName = "nixl" | "shared-storage" | "sglang" | "mooncake" | "offloading" | "none";

/**
 * How a consumer finds embeddings. `ec-nixl`: only by the references of the request; `ec-example`: by content hash in the shared store, references
 * are not needed; `any`: by reference where one is given, by content hash otherwise.
 */
export type EcConnectorName = "any" | "ec-nixl" | "ec-example";

export interface EngineOptions {
  role: Role;
  /** Loopback address to listen on, default `127.0.0.1`; `::1` works. */
  host?: string;
  /** Service port, 0 (default) for a free one. */
  port?: number;
  /** Control port, 0 (default) for a free one. It is also the engine's side channel (`remote_port`, `peer_port`). */
  controlPort?: number;
  /** Name in records and logs, default the role. */
  name?: string;
  /** Models that `/v1/models` lists, default `["sim"]`. A request may name any model unless {@link strictModels}. */
  model?: string[];
  /** Names of LoRA adapters; requests for them show in `vllm:lora_requests_info`. */
  loraAdapters?: string[];
  /** 404 for a model that is neither in {@link model} nor in {@link loraAdapters}. Default false. */
  strictModels?: boolean;

  /** Milliseconds per prompt token that is computed here (neither cached nor transferred). Default 0. */
  msPerPrefillToken?: number;
  /** Milliseconds per generated token. Default 0. */
  msPerDecodeToken?: number;
  /** Milliseconds per media item that is encoded here. Default 0. */
  msPerMediaItem?: number;

  /** Tokens per KV block, default 16. */
  blockSize?: number;
  /** KV blocks, default 4096. */
  numBlocks?: number;
  /** Requests that run at once; more wait. Default 256. */
  maxNumSeqs?: number;
  /** Longest prompt plus answer in tokens; 0 (default): no limit. A longer prompt is a 400 with param `input_tokens`. */
  maxModelLen?: number;

  /** How long a prefiller keeps the blocks of a hand-off that nobody takes. Default 30,000 (vLLM's `kv_lease_duration`). */
  leaseMs?: number;
  /** How long a decoder tries to reach a prefiller's side channel. Default 5,000, as hard-coded in vLLM 0.32. */
  handshakeTimeoutMs?: number;
  /** What a decoder does when the KV cannot be had. Default `fail`. */
  kvLoadFailurePolicy?: "fail" | "recompute";
  kvConnector?: KvConnectorName;
  ecConnector?: EcConnectorName;
  /** Side channels (`host:port` of their control ports) of the encoders whose store this engine shares (`ec-example`, across processes). */
  encoders?: string[];
  /** Engines of one process that share a store; see {@link EngineDirectory}. */
  peers?: EngineDirectory;
  /** `strict` (default): prefill and encode legs must have exactly the right form, 400 names what is wrong. `real`: as lenient as vLLM 0.32. */
  strictness?: "strict" | "real";
  /** Key names of the offloading connector: `seed` (`decode`, `prefill`, `p2p`) or `v2` (`remote_decoder`, …). Default: either. */
  kvParamsDialect?: "seed" | "v2" | "any";
  /** Engine ids that a mooncake bootstrap server lists, one per data-parallel rank. Default 1. */
  dataParallelSize?: number;
  /**
   * Port of the rendezvous server of the connectors sglang (bootstrap), mooncake (bootstrap) and offloading (p2p); 0 (default) for a free one. Engines
   * of one process that name the same host and port share one server, as a sidecar knows one port for all prefillers.
   */
  bootstrapPort?: number;
  /** How long a decoder waits for the prefiller of its rendezvous (sglang, mooncake, offloading). Default 30,000. */
  rendezvousTimeoutMs?: number;
  /** Side channels (`host:port` of control ports) whose engines share the KV store of `shared-storage`, across processes. */
  kvStores?: string[];

  /** `Authorization: Bearer <key>` is wanted on `/v1/*`, 401 otherwise. */
  requireApiKey?: string;
  /** PEM texts: the service port speaks TLS. The control port never does. */
  tls?: { cert: string; key: string };
  /** How long an idle connection is kept. Default 5,000 (uvicorn's). */
  keepAliveMs?: number;
  /** `usage.prompt_tokens_details` in answers (`--enable-prompt-tokens-details`). Default true. */
  promptTokensDetails?: boolean;
  /** `/inference/v1/generate` is served (`--enable-scale-out`); 403 otherwise. Default true. */
  scaleOut?: boolean;
  /** Responses are stored for `previous_response_id` (`VLLM_ENABLE_RESPONSES_API_STORE`). Default false: every id is unknown, 404. */
  responsesStore?: boolean;
  /** Dimensions of an embedding. Default 64. */
  embeddingDimensions?: number;
  /** Which inference server's metric families `/metrics` carries. Default `vllm`. */
  engineType?: "vllm" | "sglang";
  /** Records kept; the oldest go first. Default 20,000. */
  maxRecords?: number;
  /** Bytes of request bodies kept in records; older bodies are dropped (`bodyDropped`). Default 512 MiB. */
  maxRecordedBytes?: number;
  /**
   * A scripted `tcp: refused` that is not its script's last entry is used up when the machine's count of failed connects rises (default true). False: it
   * stays until somebody who knows of the attempt calls the queue's `take`.
   */
  watchRefusals?: boolean;
  /** Script from the start: shared by every engine that gets the same queue object. */
  scripts?: Partial<Record<Stage, ScriptQueue>>;
}

/** The scripted failure of a connection. */
export type ScriptTcp = "refused" | "reset";

/**
 * One scripted call. Without `status` and body (`json`, `text`, `sse`, `chunks`) it only changes the timing of the simulated answer.
 */
export interface ScriptEntry {
  status?: number;
  headers?: Record<string, string | string[]>;
  json?: unknown;
  text?: string;
  /** Content deltas, sent as chat chunks, then `[DONE]`. */
  sse?: string[];
  /** Sent one write each. Over HTTP a piece that is no text is written `{"base64": "..."}`. */
  chunks?: (string | Uint8Array)[];
  /** Before the status line. */
  delay_ms?: number;
  /** After the request is read, before the first byte; a simulated decoder takes the hand-off's blocks only at its end. */
  first_byte_delay_ms?: number;
  /** Between two pieces of `sse` or `chunks`. Not part of the cases' format. */
  gap_ms?: number;
  /** Instead of an answer. */
  tcp?: ScriptTcp;
  /** After the last piece, before any `[DONE]`. */
  then?: "reset";
  /** The idle connection is closed so long after this answer. */
  close_idle_after_ms?: number;
}

/** One entry, or a list: one per call, the last repeats. */
export type Script = ScriptEntry | ScriptEntry[];

/** What a decoder found when it followed a hand-off. */
export interface HandoffRecord {
  connector: KvConnectorName;
  /** The blocks were really there, held for this request and not yet taken. */
  found: boolean;
  /** Blocks that were transferred. */
  blocks: number;
  /** Prompt tokens that were transferred. */
  tokens: number;
  /** The parameters are those that the prefiller handed out. */
  verbatim: boolean;
  /** Members that differ from what the prefiller handed out. */
  differs: string[];
  /** The prompt's KV is what this prompt would have given: false means a silently wrong answer. */
  correct: boolean;
  /** The KV could not be had and was computed here (`kvLoadFailurePolicy: recompute`, or by a connector's nature). */
  recomputed: boolean;
  /** `host:port` of the prefiller's side channel that was used. */
  peer: string;
  /** Why it failed, `""` when it did not. */
  reason: string;
}

/** One distinct media item of a request and where its embedding came from. */
export interface MediaRecord {
  hash: string;
  modality: "image" | "audio" | "video";
  /**
   * `reference`: fetched from the encoder that the request named; `store`: found in the shared store by hash; `cache`: this engine had it;
   * `kv`: not needed, the KV of its tokens was cached or transferred; `local`: encoded here.
   */
  source: "reference" | "store" | "cache" | "kv" | "local";
  /** What the reference in `ec_transfer_params` was worth, whether it was needed or not. */
  reference: "none" | "found" | "missing" | "edited" | "malformed";
  /** `host:port` of the encoder that had it. */
  peer: string | null;
}

/** One request as this engine saw it. The JSON of `GET /_sim/requests` has the same members, the body as `bodyBase64`. */
export interface EngineRecord {
  /** 1 for the first request of this engine since its start or `reset`. */
  seq: number;
  engine: string;
  stage: Stage;
  /** A call of a model route (what scripts and call counts speak of), not `/metrics`, `/health` and the like. */
  modelCall: boolean;
  method: string;
  /** With its query. */
  path: string;
  /** As received: order, case and repeats kept. */
  rawHeaders: [string, string][];
  /** Trailer fields of a chunked request. */
  rawTrailers: [string, string][];
  /** Byte for byte, after transfer-decoding. */
  body: Buffer;
  /** The body was dropped to stay within `maxRecordedBytes`. */
  bodyDropped: boolean;
  /** Milliseconds of the machine-wide clock (`performance.timeOrigin + performance.now()`), so that records of several engines merge. */
  startedAtMs: number;
  /** When the body was complete; null for a call that was never read to its end. */
  readAtMs: number | null;
  firstByteAtMs: number | null;
  endedAtMs: number | null;
  /** Status sent, 0 when none was. */
  status: number;
  /** The client's socket closed before the answer's end. */
  aborted: boolean;
  abortedAtMs: number | null;
  open: boolean;
  scripted: boolean;
  /** The rule that the request broke, also where the answer is a silent 200. */
  error: string | null;
  /** Paths of control members that reached this engine, escapes resolved, in any text encoding: `kv_transfer_params`, `vllm_xargs.kv_transfer_params`, … */
  controlMembers: string[];
  /** The parsed body (last duplicate wins), undefined when it is not JSON. Not part of the HTTP form. */
  json: unknown;
  handoff: HandoffRecord | null;
  media: MediaRecord[];
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** `host:port` that this request made the engine connect to (or try to). */
  outbound: string[];
}

/** `GET /_sim/state`. */
export interface EngineState {
  name: string;
  role: Role;
  engineId: string;
  url: string;
  controlPort: number;
  /** Why the engine process died, null while it lives. */
  dead: string | null;
  /** Hand-offs whose blocks this engine still holds. */
  heldTransfers: { requestId: string; blocks: number; tokens: number; expiresInMs: number }[];
  expiredTransfers: number;
  /** Embeddings that this engine holds for others, by media hash. */
  heldEmbeddings: string[];
  blocks: { total: number; used: number; pinned: number; cached: number; usage: number };
  running: number;
  waiting: number;
  openRequests: number;
  /** Most model calls open at once since the start, `DELETE /_sim/requests` or `reset`. */
  maxInFlight: number;
  /** Scripted connection failures. */
  attempts: number;
  connections: number;
  calls: Record<Stage, number>;
}

export interface Engine {
  readonly name: string;
  readonly role: Role;
  /** `http(s)://host:port`, IPv6 bracketed. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly controlPort: number;
  readonly controlUrl: string;
  /** Port of the bootstrap server of the connector, 0 when it has none. */
  readonly bootstrapPort: number;
  readonly engineId: string;
  /** Ends every connection and listener. */
  close(): Promise<void>;
  /** In order of start; the records are live objects. */
  records(): EngineRecord[];
  /** A script for every stage of this engine, or for one; null removes it. A `ScriptQueue` may be shared with other engines. */
  setScript(script: Script | ScriptQueue | null, stage?: Stage): void;
  state(): EngineState;
  /** Forgets records, cache, blocks, hand-offs, embeddings, counters and script, and starts a dead or refusing engine anew. */
  reset(): Promise<void>;
  clearRecords(): void;
  /** Waits until no request is open, up to `timeoutMs`; true when that came about. */
  idle(timeoutMs?: number): Promise<boolean>;
}
