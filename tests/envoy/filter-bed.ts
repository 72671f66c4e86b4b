/** The real filter in a real Envoy, in front of pods that do nothing but answer: what is shown here is what the filter decides and what it knows. */
import { readFileSync } from "node:fs";
import { Gateway, json, type GatewayOptions, until } from "./gateway.js";
import { Pod } from "./pod.js";
import type { DecisionRecord } from "../fleet/access-log.js";
import { headerLines, type Answer, type RequestOptions, send } from "../fleet/http.js";
import { built } from "../fleet/root.js";

/** One endpoint of the state listener's answer. */
export interface EndpointState {
  id: number;
  name: string;
  address: string;
  roles: string[];
  load: { waiting: number | null; running: number | null; kvUsage: number | null };
  ageMs: number | null;
  health: "ok" | "draining" | "unreachable" | "unknown";
  failures: number;
  inFlight: { requests: number; tokens: number };
  prefixBlocks: number;
  prefixCapacity: number;
}

export interface FilterState {
  version: string;
  configured: boolean;
  revision: number;
  blockTokens: number;
  endpoints: EndpointState[];
  decisions: Record<string, number>;
  requests: number;
  reasons: Record<"decode" | "prefill" | "encode", Record<string, number>>;
}

export interface Decided {
  answer: Answer;
  decision: DecisionRecord;
}

export interface BedOptions extends Partial<Omit<GatewayOptions, "endpoints">> {
  /** Pods per role; default two each. */
  pods?: Partial<Record<"decode" | "prefill" | "encode", number>>;
}

export class Bed {
  private constructor(
    readonly gateway: Gateway,
    readonly pods: Pod[],
  ) {}

  static async start(options: BedOptions = {}): Promise<Bed> {
    const { pods: counts, ...rest } = options;
    const pods: Pod[] = [];
    for (const role of ["decode", "prefill", "encode"] as const) {
      for (let i = 0; i < (counts?.[role] ?? 2); i++) pods.push(await Pod.start({ name: `${role.slice(0, 1)}${i.toString()}` }));
    }
    const gateway = await Gateway.start({
      module: readFileSync(built("filter.wasm")),
      ...rest,
      options: { reasonHeader: true, ...rest.options },
      endpoints: pods.map((pod) => targetOf(pod)),
    });
    return new Bed(gateway, pods);
  }

  pod(name: string): Pod {
    const pod = this.pods.find((each) => each.name === name);
    if (pod === undefined) throw new Error(`no pod ${name}`);
    return pod;
  }

  /** Sends and reads the decision out of the answer's header. */
  async decide(request: Partial<RequestOptions> & { path: string }): Promise<Decided> {
    const answer = await this.gateway.send({ method: "POST", ...request });
    return { answer, decision: decisionOf(answer) };
  }

  post(body: unknown, path = "/v1/chat/completions", more: Partial<RequestOptions> = {}): Promise<Decided> {
    return this.decide({ path, body: Buffer.from(typeof body === "string" ? body : JSON.stringify(body)), headers: [["content-type", "application/json"]], ...more });
  }

  async state(): Promise<FilterState> {
    const { host, port } = this.gateway.settings.state;
    return json(await send({ host, port, method: "GET", path: "/state" })) as FilterState;
  }

  async endpoint(name: string): Promise<EndpointState> {
    const found = (await this.state()).endpoints.find((each) => each.name === name);
    if (found === undefined) throw new Error(`the filter knows no ${name}`);
    return found;
  }

  /** Waits until every endpoint has been scraped, so that a decision is not one of the first moments. */
  async settled(): Promise<void> {
    await until("a scrape of every endpoint", async () => {
      // Until a VM runs, the state listener says so instead.
      const { endpoints } = (await this.state()) as Partial<FilterState>;
      return endpoints?.every((each) => each.health === "ok") ?? false;
    });
  }

  async stop(): Promise<void> {
    await this.gateway.stop();
    await Promise.all(this.pods.map((pod) => pod.close()));
  }
}

export function targetOf(pod: Pod): { name: string; host: string; port: number; role: string } {
  return { name: pod.name, host: pod.host, port: pod.port, role: { d: "decode", p: "prefill", e: "encode" }[pod.name.slice(0, 1)] ?? "decode" };
}

export function decisionOf(answer: Answer): DecisionRecord {
  const [text] = headerLines(answer.headers, "x-crosspoint-decision");
  if (text === undefined) throw new Error(`no decision in the answer: ${String(answer.status)} ${answer.body.toString("utf8").slice(0, 200)}`);
  return JSON.parse(text) as DecisionRecord;
}

const SENTENCE = "The harbour office keeps a ledger of every vessel that enters the bay and writes the tide beside it. ";

/** Text of exactly `tokens` estimated tokens (four bytes each, the role's four bytes taken off) that no other `salt` shares a beginning with. */
export function promptText(tokens: number, salt = ""): string {
  const bytes = tokens * 4 - "user".length;
  return (salt + SENTENCE.repeat(Math.ceil(bytes / SENTENCE.length))).slice(0, bytes);
}

/** A chat body whose prompt has exactly `tokens` estimated tokens. */
export function chat(tokens: number, salt = "", more: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: "m", messages: [{ role: "user", content: promptText(tokens, salt) }], max_tokens: 4, ...more };
}
