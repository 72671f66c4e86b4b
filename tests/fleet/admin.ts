/** Envoy's admin address: readiness and counters. */
import { request } from "node:http";

export interface AdminAnswer {
  status: number;
  body: string;
}

export class Admin {
  readonly host: string;
  readonly port: number;

  constructor(host: string, port: number) {
    this.host = host;
    this.port = port;
  }

  /** Rejects when nothing listens. */
  get(path: string, method: "GET" | "POST" = "GET"): Promise<AdminAnswer> {
    return new Promise((resolve, reject) => {
      const call = request({ host: this.host, port: this.port, path, method, timeout: 5_000 }, (answer) => {
        const pieces: Buffer[] = [];
        answer.on("data", (piece: Buffer) => pieces.push(piece));
        answer.on("end", () => { resolve({ status: answer.statusCode ?? 0, body: Buffer.concat(pieces).toString("utf8") }); });
        answer.on("error", reject);
      });
      call.on("timeout", () => call.destroy(new Error(`admin ${path}: no answer within 5 s`)));
      call.on("error", reject);
      call.end();
    });
  }

  /** The server is live and its listeners are up. */
  async ready(): Promise<boolean> {
    try {
      return (await this.get("/ready")).status === 200;
    } catch {
      return false;
    }
  }

  /** Counters and gauges by name. */
  async stats(): Promise<Stats> {
    const { body } = await this.get("/stats?format=text&type=All");
    return readStats(body);
  }
}

/** Names (with tags as Envoy writes them) and values. */
export type Stats = ReadonlyMap<string, number>;

/** Reads Envoy's text form `name: value`; histograms and texts are left out. */
export function readStats(text: string): Stats {
  const stats = new Map<string, number>();
  for (const line of text.split("\n")) {
    const match = /^(\S+): ([0-9]+)$/.exec(line);
    if (match?.[1] !== undefined) stats.set(match[1], Number(match[2]));
  }
  return stats;
}

/** The sum of all values whose name matches; null when none does. */
export function sumOf(stats: Stats, pattern: RegExp): number | null {
  let sum: number | null = null;
  for (const [name, value] of stats) if (pattern.test(name)) sum = (sum ?? 0) + value;
  return sum;
}

/** A sample of the Prometheus text format. */
export interface Sample {
  name: string;
  labels: Readonly<Record<string, string>>;
  value: number;
}

/** Reads the Prometheus text format; comments and broken lines are left out. */
export function readPrometheus(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (match === null) continue;
    const labels: Record<string, string> = {};
    for (const pair of (match[2] ?? "").matchAll(/([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"/g)) {
      labels[pair[1] ?? ""] = (pair[2] ?? "").replace(/\\(.)/g, (_whole, character: string) => (character === "n" ? "\n" : character));
    }
    samples.push({ name: match[1] ?? "", labels, value: Number(match[3]) });
  }
  return samples;
}
