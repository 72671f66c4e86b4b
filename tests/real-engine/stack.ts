/** Real engines in a fleet as users have it: Envoy with the filter, our sidecar before the decoder, the files that the renderer reads. */
import type { DecisionRecord } from "../fleet/access-log.js";
import { Fleet, type Pod, type PodRole, type RunningEnvoy, type SidecarFlags } from "../fleet/fleet.js";
import { type Answer, headerLines, type HeaderLine, send } from "../fleet/http.js";
import { pickerDocument } from "../fleet/picker.js";
import { type Address } from "../fleet/render.js";
import { Sidecar } from "../fleet/sidecar.js";
import { type Bed, type EngineFace, type Setting, SETTINGS } from "../wire/bed.js";
import { BLOCK_TOKENS, exampleEncodeFlags, exampleKvFlags, MODEL, nixlFlags, RealEngine, sharedFolder, TOOL_FLAGS } from "./engine.js";

export type Kind = "nixl" | "encoders" | "shared-storage";

/** A hand-over between engines that share two busy cores can take seconds. */
export const PATIENCE_MS = 60_000;
/** What a request must have beyond the cache, in tokens as the filter estimates them, to be prefilled elsewhere. */
export const NON_CACHED_TOKENS = 32;

const SIDECAR_FLAGS: Readonly<Record<Kind, SidecarFlags>> = {
  nixl: [["kv-connector", "nixlv2"]],
  encoders: [["ec-connector", "ec-example"]],
  "shared-storage": [["kv-connector", "shared-storage"]],
};

const PODS: Readonly<Record<Kind, Readonly<Record<PodRole, number>>>> = {
  nixl: { decode: 1, prefill: 1, encode: 0 },
  encoders: { decode: 1, prefill: 0, encode: 1 },
  "shared-storage": { decode: 1, prefill: 1, encode: 0 },
};

/** Flags of the engines of each kind, by role. What the last run left in a shared folder is gone. */
function engineFlags(kind: Kind): (role: PodRole) => string[] {
  switch (kind) {
    case "nixl":
      return (role) => [...nixlFlags(role === "prefill" ? "prefill" : "decode"), ...TOOL_FLAGS];
    case "encoders": {
      const folder = sharedFolder("embeddings");
      return (role) => exampleEncodeFlags(role === "encode" ? "ec_producer" : "ec_consumer", folder);
    }
    case "shared-storage": {
      const folder = sharedFolder("blocks");
      return () => exampleKvFlags(folder);
    }
  }
}

export class Stack {
  private readonly doors: Sidecar[] = [];
  private constructor(
    readonly kind: Kind,
    readonly fleet: Fleet<RealEngine>,
    readonly envoy: RunningEnvoy,
  ) {}

  static async start(kind: Kind, listen?: Address): Promise<Stack> {
    const [pods, flags] = [PODS[kind], engineFlags(kind)];
    const fleet = await Fleet.start<RealEngine>({
      pods,
      startEngine: ({ name, role }) => RealEngine.start({ name, model: kind === "encoders" ? "vision" : "text", flags: flags(role) }),
      envoy: {
        picker: pickerDocument({ prefill: pods.prefill > 0, encode: pods.encode > 0, blockSizeTokens: BLOCK_TOKENS, nonCachedTokens: NON_CACHED_TOKENS }),
        filterOptions: { reasonHeader: true },
        ...(listen === undefined ? {} : { listen }),
      },
      sidecarFlags: SIDECAR_FLAGS[kind],
      taps: false,
    });
    if (fleet.running === null) throw new Error("no Envoy");
    return new Stack(kind, fleet, fleet.running);
  }

  get decode(): Pod<RealEngine> {
    return this.fleet.pod("d0");
  }

  get prefill(): Pod<RealEngine> {
    return this.fleet.pod("p0");
  }

  get encode(): Pod<RealEngine> {
    return this.fleet.pod("e0");
  }

  /** A POST to Envoy. */
  ask(path: string, body: string | Buffer | object, more: { headers?: readonly HeaderLine[]; leave?: AbortSignal; timeoutMs?: number; onBody?: (piece: Buffer) => void } = {}): Promise<Answer> {
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
    const { headers = [], ...rest } = more;
    return send({ ...this.envoy.listen, method: "POST", path, headers: [["content-type", "application/json"], ...headers], body: bytes, timeoutMs: PATIENCE_MS, ...rest });
  }

  /** A sidecar of its own before the decoder, beside the fleet's: its door takes routing headers. */
  async door(name: string, flags: readonly string[]): Promise<Sidecar> {
    const { host, port } = this.decode.engine;
    const pairs = flags.map((flag): [string, string] => {
      const [key = "", value = "true"] = flag.replace(/^--/, "").split("=");
      return [key, value];
    });
    const sidecar = await Sidecar.start({ name: `sidecar ${name}`, host: "127.0.0.1", engine: { host, port }, flags: [...SIDECAR_FLAGS[this.kind], ...pairs] });
    this.doors.push(sidecar);
    return sidecar;
  }

  /** The bed of the wire scenarios: whole path, or the sidecar's own doors. */
  async bed(via: Bed["via"], settings: readonly Setting[]): Promise<Bed> {
    const doors: Partial<Record<Setting, Address>> = {};
    if (via === "gateway") doors.fail = this.envoy.listen;
    else for (const setting of settings) doors[setting] = await this.door(setting, SETTINGS[setting]);
    return {
      via,
      doors,
      model: MODEL,
      prefill: face(this.fleet.of("prefill")[0] ?? this.decode),
      decode: face(this.decode),
      encode: this.fleet.of("encode").map(face),
      patienceMs: PATIENCE_MS,
      clear: () => Promise.resolve(),
    };
  }

  /** Engines that are not what they were: ended, or no longer well. */
  async fallen(): Promise<string[]> {
    const states = await Promise.all(this.fleet.pods.map(async ({ name, engine }) => ((await engine.healthy()) ? null : `${name}: ${engine.child.lastLines(3)}`)));
    return [...states.filter((state) => state !== null), ...this.fleet.dead()];
  }

  async close(): Promise<void> {
    await Promise.all(this.doors.splice(0).map((door) => door.stop()));
    await this.fleet.close();
  }
}

function face({ name, engine }: Pod<RealEngine>): EngineFace {
  return { name, address: engine.address, sim: null, metrics: () => engine.metrics() };
}

/** What the filter decided, by the header that FilterOptions switch on. Throws when the answer has none. */
export function decisionOf(answer: Answer): DecisionRecord {
  const [text] = headerLines(answer.headers, "x-crosspoint-decision");
  if (text === undefined) throw new Error(`no decision: ${String(answer.status)} ${answer.error ?? ""} ${answer.body.toString("utf8", 0, 300)}`);
  return JSON.parse(text) as DecisionRecord;
}

const WARM_UP_MS = 180_000;

/**
 * A throw-away pair of requests over both legs. The first hand-over makes the engines' connection, and vLLM gives that five seconds, which a busy machine may not have: a second
 * try is allowed, and no test is about it. The first request of an API has much to load.
 */
export async function warmUp(stack: Stack): Promise<void> {
  for (const path of ["/v1/completions", "/v1/chat/completions"]) {
    for (let attempt = 1; ; attempt++) {
      const text = `warm-up ${attempt.toString()} ${process.pid.toString()} ${"the ferry leaves the pier ".repeat(20)}`;
      const prompt = path === "/v1/completions" ? { prompt: text } : { messages: [{ role: "user", content: text }] };
      const answer = await stack.ask(path, { model: MODEL, max_tokens: 4, ...prompt }, { timeoutMs: WARM_UP_MS });
      if (answer.status === 200 && decisionOf(answer).decision === "prefill-decode") break;
      if (attempt >= 3) throw new Error(`the first hand-over does not come about: ${String(answer.status)} ${answer.error ?? ""} ${answer.body.toString("utf8", 0, 300)}`);
    }
  }
}
