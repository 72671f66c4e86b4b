/**
 * NixlConnector in pull mode, as vLLM 0.32 does it (real-engine §4): the prefiller pins its blocks and answers where they are, the decoder reads them by
 * these parameters, once. What the real engine does about wrong parameters is done here too: it answers 500, it dies, or it says nothing and reads
 * the wrong KV.
 */

import type { FinishReason } from "../answer.js";
import { oneTokenProblem, streamProblem } from "../api/caps.js";
import type { GenerationRequest } from "../api/request.js";
import { forever, sleep } from "../core/time.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { ApiError, ClientGone, EngineDeath, EngineRestart, internalError } from "../errors.js";
import { fingerprint } from "../fingerprint.js";
import { canonical, isObject, member, type Json, type JsonObject } from "../json.js";
import { joinHostPort } from "../options.js";
import { PeerUnreachable } from "../peer.js";
import type { HandoffRecord } from "../types.js";
import { NOTHING_HELD, type Finished, type KvConnector, type LoadedKv, type Sequence } from "./types.js";

const REMOTE_MEMBERS = ["remote_engine_id", "remote_block_ids", "remote_host", "remote_port"];
/** Members of a KV-source pull, which may stand beside the prefill leg's own (sidecar §4.1). */
const PULL_MEMBERS = ["p2p", "remote_kv_source"];

/** Python's truth: a string "false" is true (real-engine §4, `"do_remote_decode":"true"`). */
export function truthy(value: Json | undefined): boolean {
  if (value === undefined || value === null || value === false || value === 0 || value === "") return false;
  if (Array.isArray(value)) return value.length > 0;
  return isObject(value) ? Object.keys(value).length > 0 : true;
}

/** What is wrong with the parameters of a prefill leg, null when nothing is. Both the full form and vLLM's minimum are right. */
export function prefillParamsProblem(params: JsonObject | null): string | null {
  if (params === null) return "kv_transfer_params is missing: this engine serves prefill legs only";
  if (member(params, "do_remote_decode") !== true) return "kv_transfer_params.do_remote_decode must be true";
  if (member(params, "do_remote_prefill") !== false) return "kv_transfer_params.do_remote_prefill must be false";
  const extra = Object.keys(params).find((name) => !["do_remote_decode", "do_remote_prefill", ...REMOTE_MEMBERS, ...PULL_MEMBERS].includes(name));
  if (extra !== undefined) return `kv_transfer_params.${extra} is not a member of a prefill leg`;
  const present = REMOTE_MEMBERS.filter((name) => member(params, name) !== undefined);
  if (present.length === 0) return null;
  const missing = REMOTE_MEMBERS.find((name) => member(params, name) === undefined);
  if (missing !== undefined) return `kv_transfer_params.${missing} must be present and null`;
  const given = REMOTE_MEMBERS.find((name) => member(params, name) !== null);
  return given === undefined ? null : `kv_transfer_params.${given} must be null`;
}

interface RemoteParams {
  readonly engineId: Json;
  readonly host: string;
  readonly port: number;
  readonly requestId: Json;
  readonly blockIds: number[];
}

export class NixlConnector implements KvConnector {
  readonly name = "nixl";

  private readonly reads = new WeakMap<GenerationRequest, Promise<RemoteRead>>();

  constructor(private readonly services: EngineServices) {}

  check(request: GenerationRequest, leg: Leg): void {
    if (leg.stage !== "prefill" || this.services.options.strictness === "real") return;
    const params = request.kvTransferParams;
    const problem = prefillParamsProblem(params) ?? streamProblem(request) ?? oneTokenProblem(request);
    if (problem === null) return;
    noteError(leg.record, problem);
    throw new ApiError(400, problem, problem.split(/[ :]/, 1)[0] ?? null);
  }

  loads(sequence: Sequence): boolean {
    return truthy(member(sequence.request.kvTransferParams ?? {}, "do_remote_prefill"));
  }

  async load(sequence: Sequence, leg: Leg): Promise<LoadedKv> {
    const params = sequence.request.kvTransferParams ?? {};
    const handoff: HandoffRecord = { connector: "nixl", found: false, blocks: 0, tokens: 0, verbatim: false, differs: [], correct: false, recomputed: false, peer: "", reason: "" };
    leg.record.handoff ??= handoff;
    try {
      const remote = await this.readParams(params, leg, handoff);
      const { options } = this.services;
      const answer = await this.readRemote(sequence, remote, leg, handoff);
      const differs = memberDifferences(params, answer.params);
      handoff.found = answer.status === "ok";
      handoff.differs = differs;
      handoff.verbatim = handoff.found && differs.length === 0;
      handoff.blocks = answer.contents.length;
      handoff.tokens = sequence.promptTokens - sequence.hitBlocks * options.blockSize;
      handoff.correct = handoff.found;
      if (differs.length > 0) noteError(leg.record, `kv_transfer_params differ from what the prefiller handed out: ${differs.join(", ")}`);
      this.services.metrics.nixlTransfer(answer.contents.length);
      if (handoff.found) return { contents: answer.contents, tokens: handoff.tokens, source: "external_kv_transfer", wrong: null };
      handoff.reason = answer.status === "taken" ? "the blocks were already taken" : answer.status === "expired" ? "the lease had run out" : "the prefiller does not know the request";
      noteError(leg.record, `hand-off: ${handoff.reason}`);
      // 200 and no word about it: the engine computes on whatever lies there now (real-engine §4, "params replayed").
      return { contents: answer.contents, tokens: handoff.tokens, source: "external_kv_transfer", wrong: handoff.reason };
    } catch (error) {
      if (!(error instanceof KvLoadFailure)) {
        if (error instanceof EngineDeath) handoff.reason = error.reason;
        throw error;
      }
      handoff.reason = error.message;
      noteError(leg.record, `hand-off: ${error.message}`);
      this.services.metrics.nixlFailedTransfers.inc();
      if (this.services.options.kvLoadFailurePolicy === "fail") throw internalError();
      handoff.recomputed = true;
      handoff.correct = true;
      return { contents: [], tokens: 0, source: "external_kv_transfer", wrong: null };
    }
  }

  finished(sequence: Sequence, leg: Leg, finish: FinishReason): Promise<Finished> {
    const params = sequence.request.kvTransferParams;
    // As the real one: parameters only for a request that ran into its limit.
    if (params === null || !truthy(member(params, "do_remote_decode")) || finish !== "length") return Promise.resolve(NOTHING_HELD);
    const { options, transfers, pool, engineId, controlPort } = this.services;
    const requestId = `${sequence.request.id}${sequence.index === 0 ? "" : `-${String(sequence.index)}`}-${fingerprint(engineId, String(leg.record.seq), String(sequence.index)).slice(0, 8)}`;
    const blockIds = [...sequence.promptBlocks];
    const answer: JsonObject = {
      do_remote_prefill: true,
      do_remote_decode: false,
      remote_block_ids: [blockIds],
      remote_engine_id: engineId,
      remote_request_id: requestId,
      remote_host: options.host,
      remote_port: controlPort,
      tp_size: 1,
      dcp_size: 1,
      pp_size: 1,
      remote_num_tokens: sequence.promptTokens,
      remote_blocks_expiry_time: null,
      transfer_mode: "pull",
      remote_prefill_cached_tokens: sequence.hitBlocks * options.blockSize,
    };
    transfers.hold(requestId, pool, blockIds, sequence.promptTokens, answer);
    return Promise.resolve({ params: answer, held: true });
  }

  /** @throws EngineDeath and hangs as in real-engine §4's table */
  private async readParams(params: JsonObject, leg: Leg, handoff: HandoffRecord): Promise<RemoteParams> {
    const ids = member(params, "remote_block_ids") ?? null;
    if (Array.isArray(ids) && ids.some((group) => !Array.isArray(group))) {
      noteError(leg.record, "remote_block_ids must be a list of lists");
      throw new EngineDeath("TypeError: 'int' object is not iterable (remote_block_ids is a flat list)");
    }
    const host = member(params, "remote_host");
    const port = Number(member(params, "remote_port") ?? Number.NaN);
    if (!Array.isArray(ids) || typeof host !== "string" || member(params, "remote_engine_id") === undefined) {
      throw new KvLoadFailure("remote_block_ids, remote_engine_id and remote_host are wanted");
    }
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw new KvLoadFailure("remote_port is no port");
    handoff.peer = joinHostPort(host, port);
    const requestId = member(params, "remote_request_id") ?? null;
    if (requestId === null) {
      noteError(leg.record, "remote_request_id is missing");
      await forever(leg.signal).catch((reason: unknown) => {
        const left = reason instanceof ClientGone && !(reason instanceof EngineRestart);
        throw left ? new EngineDeath("KeyError: 'remote_request_id'") : reason;
      });
    }
    const group = ids[0];
    const blockIds = Array.isArray(group) ? group.map(Number) : [];
    return { engineId: member(params, "remote_engine_id") ?? null, host, port, requestId, blockIds };
  }

  /** All prompts of one request read the same blocks (real-engine §4, "list prompt"), so they are read once for the request. */
  private readOnce(request: GenerationRequest, remote: RemoteParams, leg: Leg): Promise<RemoteRead> {
    const known = this.reads.get(request);
    if (known !== undefined) return known;
    const body = { requestId: typeof remote.requestId === "string" ? remote.requestId : "", blockIds: remote.blockIds };
    const read = this.services.peers
      .call(remote.host, remote.port, "/_sim/handoff/read", body, this.services.options.handshakeTimeoutMs, leg.signal)
      .then((answer) => readAnswer(answer.json, joinHostPort(remote.host, remote.port)));
    this.reads.set(request, read);
    return read;
  }

  private async readRemote(sequence: Sequence, remote: RemoteParams, leg: Leg, handoff: HandoffRecord): Promise<RemoteRead> {
    const wanted = sequence.promptBlocks.length - sequence.hitBlocks;
    const startedAt = performance.now();
    const { handshakeTimeoutMs } = this.services.options;
    leg.record.outbound.push(handoff.peer);
    try {
      const hello = await this.services.peers.call(remote.host, remote.port, "/_sim/handoff/handshake", {}, handshakeTimeoutMs, leg.signal);
      const engineId = isObject(hello.json) ? member(hello.json, "engineId") : undefined;
      if (typeof engineId !== "string") throw new PeerUnreachable(handoff.peer, "no engine answers there");
      if (engineId !== remote.engineId) throw new KvLoadFailure(`remote_engine_id is not that of ${handoff.peer}`);
      if (wanted > remote.blockIds.length) {
        noteError(leg.record, "the prompt has more blocks than the hand-off");
        throw new EngineDeath(`AssertionError: num_decode_blocks <= len(prefill_group) (${String(wanted)} > ${String(remote.blockIds.length)})`);
      }
      const read = await this.readOnce(sequence.request, remote, leg);
      // With part of the prompt cached here, the real one reads the last blocks of the list.
      return { ...read, contents: wanted === 0 ? [] : read.contents.slice(-wanted) };
    } catch (error) {
      if (!(error instanceof PeerUnreachable)) throw error;
      // The real one waits its whole time-out, also for a port that refuses at once.
      await sleep(handshakeTimeoutMs - (performance.now() - startedAt), leg.signal);
      throw new KvLoadFailure(`side channel ${error.message}`);
    }
  }
}

/** The KV could not be had; what follows is decided by `kv_load_failure_policy`. */
class KvLoadFailure extends Error {}

interface RemoteRead {
  readonly status: string;
  readonly contents: (string | null)[];
  readonly params: Json;
}

function readAnswer(json: Json, peer: string): RemoteRead {
  const status = isObject(json) ? member(json, "status") : undefined;
  const contents = isObject(json) ? member(json, "contents") : undefined;
  if (!isObject(json) || typeof status !== "string" || !Array.isArray(contents)) throw new PeerUnreachable(peer, "no engine answers there");
  return { status, contents: contents.map((content) => (typeof content === "string" ? content : null)), params: member(json, "params") ?? null };
}

/** Names of the members that are not what they were; none when the other side does not remember. */
function memberDifferences(given: JsonObject, original: Json): string[] {
  if (!isObject(original)) return [];
  const names = new Set([...Object.keys(given), ...Object.keys(original)]);
  return [...names].filter((name) => {
    const [left, right] = [member(given, name), member(original, name)];
    return left === undefined || right === undefined || canonical(left) !== canonical(right);
  });
}
