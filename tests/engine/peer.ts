/** Calls from one engine to another's side channel. Loopback only. */

import { Agent, request } from "undici";

import { parseJsonBytes, stringify, type Json } from "./json.js";
import { isLoopback, joinHostPort } from "./options.js";

/** The other side could not be reached, or what answered there is no engine. */
export class PeerUnreachable extends Error {
  constructor(
    readonly peer: string,
    why: string,
  ) {
    super(`${peer}: ${why}`);
    this.name = "PeerUnreachable";
  }
}

export interface PeerAnswer {
  readonly status: number;
  readonly json: Json;
}

export class PeerClient {
  private agent = new Agent({ keepAliveTimeout: 1_000, pipelining: 1 });

  /**
   * @throws PeerUnreachable when there is no engine at that address or it does not answer in time
   * @throws the signal's reason when that is what ended it
   */
  async call(host: string, port: number, path: string, body: Json, timeoutMs: number, signal: AbortSignal): Promise<PeerAnswer> {
    const peer = joinHostPort(host, port);
    if (!isLoopback(host)) throw new PeerUnreachable(peer, "not a loopback address, not contacted");
    const limit = AbortSignal.any([signal, AbortSignal.timeout(Math.max(1, timeoutMs))]);
    try {
      const response = await request(`http://${peer}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: stringify(body),
        dispatcher: this.agent,
        headersTimeout: 0,
        bodyTimeout: 0,
        signal: limit,
      });
      return { status: response.statusCode, json: parseJsonBytes(new Uint8Array(await response.body.arrayBuffer())) };
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw new PeerUnreachable(peer, error instanceof Error ? error.message : String(error));
    }
  }

  async close(): Promise<void> {
    await this.agent.destroy();
    this.agent = new Agent({ keepAliveTimeout: 1_000, pipelining: 1 });
  }
}
