/**
 * sglang: both legs carry the same `bootstrap_host`, `bootstrap_port` and `bootstrap_room`; the prefiller answers when the decoder has read its KV
 * (sidecar §4.3). A decode engine refuses a request without a room.
 */

import type { GenerationRequest } from "../api/request.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { ApiError, internalError } from "../errors.js";
import { member } from "../json.js";
import { offerKv, takeKv, waitTaken } from "./meeting.js";
import { RendezvousServer } from "./rendezvous.js";
import { NOTHING_HELD, type Finished, type KvConnector, type LoadedKv, type Sequence } from "./types.js";

interface Room {
  readonly host: string;
  readonly port: number;
  readonly room: string;
}

/** @throws ApiError 400 that names the member */
function readRoom(request: GenerationRequest, leg: Leg): Room {
  const wrong = (name: string, problem: string): never => {
    noteError(leg.record, `${name} ${problem}`);
    throw new ApiError(400, `Disaggregated request received without a usable ${name}: it ${problem}`, name);
  };
  const host = member(request.body, "bootstrap_host");
  const port = member(request.body, "bootstrap_port");
  const room = member(request.body, "bootstrap_room");
  if (typeof host !== "string" || host === "") return wrong("bootstrap_host", "must be a host");
  if (host.startsWith("[")) return wrong("bootstrap_host", "must have no brackets");
  if (typeof port !== "number" || !Number.isInteger(port) || port < 1 || port > 65535) return wrong("bootstrap_port", "must be a port");
  const integer = typeof room === "bigint" || (typeof room === "number" && Number.isInteger(room));
  if (!integer || room < 0 || room > 0x7fffffffffffffffn) return wrong("bootstrap_room", "must be an integer from 0 to 2^63-1");
  return { host, port, room: room.toString() };
}

export class SglangConnector implements KvConnector {
  readonly name = "sglang";
  private server: RendezvousServer | null = null;

  constructor(private readonly services: EngineServices) {}

  get bootstrapPort(): number {
    return this.server?.port ?? 0;
  }

  async start(): Promise<void> {
    const { options } = this.services;
    if (options.role !== "decode") this.server = await RendezvousServer.acquire(options.host, options.bootstrapPort, 1);
  }

  async close(): Promise<void> {
    await this.server?.release();
    this.server = null;
  }

  check(request: GenerationRequest, leg: Leg): void {
    const room = readRoom(request, leg);
    if (leg.stage !== "prefill" || this.services.options.strictness === "real") return;
    if (room.host === this.services.options.host && room.port === this.bootstrapPort) return;
    noteError(leg.record, "bootstrap_host and bootstrap_port are not this prefiller's");
    throw new ApiError(400, "bootstrap_host and bootstrap_port are not this prefiller's", "bootstrap_host");
  }

  loads(_sequence: Sequence, leg: Leg): boolean {
    return leg.stage === "decode";
  }

  load(sequence: Sequence, leg: Leg): Promise<LoadedKv> {
    const { host, port, room } = readRoom(sequence.request, leg);
    return takeKv("sglang", { host, port, key: roomKey(room, sequence) }, sequence, leg, this.services, false);
  }

  async finished(sequence: Sequence, leg: Leg): Promise<Finished> {
    if (leg.stage !== "prefill" || this.server === null) return NOTHING_HELD;
    const { room } = readRoom(sequence.request, leg);
    const offered = offerKv(this.server, roomKey(room, sequence), sequence, leg);
    try {
      if (await waitTaken(offered, this.services.options.leaseMs, leg.signal)) return NOTHING_HELD;
      noteError(leg.record, "no decoder came for the room");
      throw internalError();
    } finally {
      offered.withdraw();
    }
  }
}

function roomKey(room: string, sequence: Sequence): string {
  return `room:${room}:${String(sequence.index)}`;
}
