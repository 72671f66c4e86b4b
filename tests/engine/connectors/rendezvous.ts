/**
 * Where a decoder and its prefiller meet by a key that the sidecar made up (sglang's room, mooncake's transfer id, offloading's request id): a small
 * HTTP server at the port that the connector's real one would listen on. Engines of one process that name the same host and port share one server,
 * because a sidecar knows one port for all prefillers while loopback engines share one address.
 */

import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { BlockContent } from "../blocks.js";
import { isObject, member, parseJsonBytes, stringify, type Json, type JsonObject } from "../json.js";

/** What a prefiller has for whoever brings the key. */
export interface Offer {
  readonly contents: BlockContent[];
  readonly tokens: number;
  /** The blocks were read: they can be given back. */
  taken(): void;
}

/** Tells how many of the contents, from the first on, an engine holds. */
export type PrefixHolder = (contents: readonly BlockContent[]) => number;

const servers = new Map<string, Promise<RendezvousServer>>();

function serverKey(host: string, port: number): string {
  return `${host} ${String(port)}`;
}

export class RendezvousServer {
  private readonly offers = new Map<string, Offer>();
  private readonly waiting = new Map<string, ((offer: Offer) => void)[]>();
  private readonly used = new Set<string>();
  private readonly holders = new Set<PrefixHolder>();
  private users = 0;
  private readonly server: Server;
  /** Engine ids, one per data-parallel rank. */
  private ids: string[] = [];

  private constructor(private readonly host: string) {
    this.server = createServer((request, response) => {
      this.serve(request, response).catch(() => response.destroy());
    });
  }

  /** @throws the system's error when the port is taken by something else */
  static async acquire(host: string, port: number, ranks: number): Promise<RendezvousServer> {
    let pending = port === 0 ? undefined : servers.get(serverKey(host, port));
    if (pending === undefined) {
      const server = new RendezvousServer(host);
      pending = server.listen(port).then(() => {
        servers.set(serverKey(host, server.port), Promise.resolve(server));
        return server;
      });
      // Two that start at once with one port must not both try to listen.
      if (port !== 0) servers.set(serverKey(host, port), pending);
    }
    try {
      const server = await pending;
      server.users += 1;
      while (server.ids.length < ranks) server.ids.push(randomUUID());
      return server;
    } catch (error) {
      servers.delete(serverKey(host, port));
      throw error;
    }
  }

  get port(): number {
    return (this.server.address() as AddressInfo | null)?.port ?? 0;
  }

  get engineIds(): readonly string[] {
    return this.ids;
  }

  /** False when the key was used before. */
  offer(key: string, offer: Offer): boolean {
    if (this.used.has(key)) return false;
    this.used.add(key);
    const waiter = this.waiting.get(key)?.shift();
    if (waiter === undefined) this.offers.set(key, offer);
    else waiter(offer);
    return true;
  }

  withdraw(key: string): void {
    this.offers.delete(key);
  }

  addHolder(holder: PrefixHolder): () => void {
    this.holders.add(holder);
    return () => this.holders.delete(holder);
  }

  async release(): Promise<void> {
    this.users -= 1;
    if (this.users > 0) return;
    servers.delete(serverKey(this.host, this.port));
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => {
      resolve();
    }));
  }

  private listen(port: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(port, this.host, () => {
        this.server.off("error", reject);
        resolve();
      });
    });
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method === "GET" && request.url === "/query") {
      const ranks: JsonObject = {};
      this.ids.forEach((id, rank) => {
        ranks[String(rank)] = { engine_id: id, worker_addr: {} };
      });
      answer(response, 200, ranks);
      return;
    }
    const body = await readBody(request);
    if (request.method === "POST" && request.url === "/_sim/rendezvous/take" && isObject(body)) {
      const key = member(body, "key");
      const waitMs = member(body, "waitMs");
      const offer = await this.take(typeof key === "string" ? key : "", typeof waitMs === "number" ? waitMs : 0, response);
      if (response.destroyed) return;
      if (offer === "used" || offer === "absent") {
        answer(response, 404, { status: offer });
        return;
      }
      offer.taken();
      answer(response, 200, { status: "ok", contents: offer.contents, tokens: offer.tokens, engineIds: [...this.ids] });
      return;
    }
    if (request.method === "POST" && request.url === "/_sim/rendezvous/prefix" && isObject(body)) {
      const contents = member(body, "contents");
      const wanted = Array.isArray(contents) ? contents.filter((item): item is string => typeof item === "string") : [];
      answer(response, 200, { status: "ok", blocks: Math.max(0, ...[...this.holders].map((holder) => holder(wanted))) });
      return;
    }
    answer(response, 404, { status: "unknown path" });
  }

  /** Waits for the prefiller; `used` when the key's KV is gone already. */
  private take(key: string, waitMs: number, response: ServerResponse): Promise<Offer | "used" | "absent"> {
    const ready = this.offers.get(key);
    if (ready !== undefined) {
      this.offers.delete(key);
      return Promise.resolve(ready);
    }
    if (this.used.has(key)) return Promise.resolve("used");
    return new Promise((resolve) => {
      const queue = this.waiting.get(key) ?? [];
      this.waiting.set(key, queue);
      const finish = (result: Offer | "absent"): void => {
        clearTimeout(timer);
        const at = queue.indexOf(finish);
        if (at >= 0) queue.splice(at, 1);
        if (queue.length === 0) this.waiting.delete(key);
        resolve(result);
      };
      const timer = setTimeout(() => {
        finish("absent");
      }, waitMs);
      response.once("close", () => {
        finish("absent");
      });
      queue.push(finish);
    });
  }
}

function answer(response: ServerResponse, status: number, json: Json): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(stringify(json));
}

async function readBody(request: IncomingMessage): Promise<Json> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  const body = Buffer.concat(pieces);
  return body.length === 0 ? null : parseJsonBytes(body);
}
