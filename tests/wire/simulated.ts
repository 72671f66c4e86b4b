/** A bed of simulated engines in this process; the sidecar in front of them is somebody else's. */
import { type Engine, startEngine } from "../engine/index.js";
import { readPrometheus, type Sample } from "../fleet/admin.js";
import { send } from "../fleet/http.js";
import type { Bed, EngineFace } from "./bed.js";

const PATIENCE_MS = 4000;
/** An abandoned call is ended by force. */
const IDLE_MS = 300;

/** Prefiller, decoder and two encoders, as strict as they come. */
export class SimulatedEngines implements EngineSet {
  readonly prefill: Engine;
  readonly decode: Engine;
  readonly encode: readonly Engine[];

  private constructor(prefill: Engine, decode: Engine, encode: readonly Engine[]) {
    this.prefill = prefill;
    this.decode = decode;
    this.encode = encode;
  }

  static async start(): Promise<SimulatedEngines> {
    const [prefill, decode, first, second] = await Promise.all([
      startEngine({ role: "prefill", name: "p0", handshakeTimeoutMs: 500 }),
      startEngine({ role: "decode", name: "d0", handshakeTimeoutMs: 500 }),
      startEngine({ role: "encode", name: "e0", ecConnector: "ec-nixl" }),
      startEngine({ role: "encode", name: "e1", ecConnector: "ec-nixl" }),
    ]);
    return new SimulatedEngines(prefill, decode, [first, second]);
  }

  get all(): readonly Engine[] {
    return [this.prefill, this.decode, ...this.encode];
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((engine) => engine.close()));
  }

  /** The bed with a sidecar's doors. */
  bed(doors: Bed["doors"]): Bed {
    return bedOf(this, doors);
  }
}

export interface EngineSet {
  readonly prefill: Engine;
  readonly decode: Engine;
  readonly encode: readonly Engine[];
}

export function bedOf({ prefill, decode, encode }: EngineSet, doors: Bed["doors"]): Bed {
  return {
    via: "sidecar",
    doors,
    model: "sim",
    prefill: face(prefill),
    decode: face(decode),
    encode: encode.map(face),
    patienceMs: PATIENCE_MS,
    clear: async () => {
      await Promise.all([prefill, decode, ...encode].map(forget));
    },
  };
}

function face(engine: Engine): EngineFace {
  return {
    name: engine.name,
    address: `${engine.host}:${String(engine.port)}`,
    sim: engine,
    metrics: () => scrape(engine.host, engine.port),
  };
}

/** Samples of an engine's `/metrics`. @throws Error when it does not answer */
export async function scrape(host: string, port: number): Promise<Sample[]> {
  const answer = await send({ host, port, method: "GET", path: "/metrics" });
  if (answer.status !== 200) throw new Error(`/metrics of ${host}:${String(port)}: ${answer.error ?? String(answer.status)}`);
  return readPrometheus(answer.body.toString("utf8"));
}

/** A restart in place costs more than forgetting records, so it is kept for engines that need one. */
async function forget(engine: Engine): Promise<void> {
  engine.setScript(null);
  const quiet = await engine.idle(IDLE_MS);
  const { dead, heldTransfers } = engine.state();
  if (!quiet || dead !== null || heldTransfers.length > 0) await engine.reset();
  else engine.clearRecords();
}
