import { Client, type Dispatcher, Pool } from "undici";
import { authorityOf, type Candidate, unbracketed } from "../candidates.js";
import type { SidecarOptions, TlsStage } from "../options.js";
import { upstreamContext } from "../tls.js";
import { CONNECT_TIMEOUT_MS, IDLE_TIMEOUT_MS, TlsConnections } from "./tls-connections.js";

/** Upstream hosts that keep a pool, per stage (sidecar §2). */
const MAX_POOLS_PER_STAGE = 1024;

const MAX_ANSWER_HEADER_BYTES = 1 << 20;

/** One engine: where it is and its kept connections. */
export class Upstream {
  readonly authority: string;
  /** Given with each request so that undici does not take the server name from the client's Host. */
  readonly servername: string;
  /** Legs that are open; each of them counts itself. */
  running = 0;
  readonly #origin: string;
  readonly #settings: Client.Options;
  readonly #maxIdle: number;
  readonly #pool: Pool;
  /** Null: no TLS, and so HTTP/1.1. */
  readonly #tls: TlsConnections | null;

  constructor(authority: string, tls: { readonly verify: boolean } | null, maxIdle: number) {
    const origin = `${tls === null ? "http" : "https"}://${authority}`;
    const url = new URL(origin);
    const host = unbracketed(url.hostname);
    this.authority = authority;
    this.servername = host;
    this.#origin = origin;
    this.#maxIdle = maxIdle;
    this.#tls = tls === null ? null : new TlsConnections(url, host, tls.verify);
    this.#settings = {
      connect: this.#tls === null ? { timeout: CONNECT_TIMEOUT_MS } : this.#tls.forUndici,
      // Legs have deadlines of their own; generations take as long as they take (sidecar §10.3).
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: IDLE_TIMEOUT_MS,
      keepAliveMaxTimeout: IDLE_TIMEOUT_MS,
      maxHeaderSize: MAX_ANSWER_HEADER_BYTES,
      pipelining: 1,
    };
    this.#pool = new Pool(origin, { ...this.#settings, connections: null });
  }

  /** Sends on a kept connection, or on a new one; connections beyond the idle limit are closed after their answer. */
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    const overHttp1 = (): void => {
      this.#pool.dispatch(this.running > this.#maxIdle ? { ...options, reset: true } : options, handler);
    };
    if (this.#tls === null || this.#tls.speaksHttp1) overHttp1();
    else this.#tls.dispatch(options, handler, overHttp1);
  }

  /** Sends on a connection that nothing used before and nothing will use after. */
  dispatchFresh(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    const overHttp1 = (): void => {
      const client = new Client(this.#origin, this.#settings);
      client.dispatch({ ...options, reset: true }, handler);
      client.close().catch(() => undefined);
    };
    if (this.#tls === null || this.#tls.speaksHttp1) overHttp1();
    else this.#tls.dispatchFresh(options, handler, overHttp1);
  }

  /** Open and kept connections. */
  get connections(): number {
    return (this.#pool.stats.connected ?? 0) + (this.#tls?.http2.count ?? 0);
  }

  /** Ends kept connections once what runs on them has ended. */
  async close(): Promise<void> {
    this.#tls?.http2.close();
    await this.#pool.close();
  }

  async destroy(): Promise<void> {
    this.#tls?.destroy();
    await this.#pool.destroy();
  }
}

/** The engines beside us, and pools for prefillers, their bootstrap servers and encoders, the least recently used dropped first (D18: closed when dropped). */
export class Upstreams {
  /** One per data-parallel rank. */
  readonly decoders: readonly Upstream[];
  readonly #options: SidecarOptions;
  readonly #prefillers = new Map<string, Upstream>();
  readonly #encoders = new Map<string, Upstream>();
  readonly #bootstraps = new Map<string, Upstream>();

  /** @throws OptionsError when the roots that a stage's certificates are verified with cannot be read */
  constructor(options: SidecarOptions) {
    this.#options = options;
    // Told now, and not by the first request of a stage.
    for (const stage of options.enableTls) upstreamContext(!options.tlsInsecureSkipVerify.includes(stage));
    this.decoders = Array.from({ length: options.dataParallelSize }, (_, rank) => this.#make(authorityOf(options.decoderHost, options.modelServerPort + rank), "decoder"));
  }

  prefiller(candidate: Candidate): Upstream {
    return this.#get(this.#prefillers, candidate, "prefiller");
  }

  encoder(candidate: Candidate): Upstream {
    return this.#get(this.#encoders, candidate, "encoder");
  }

  /** A prefiller's bootstrap server: never TLS (sidecar §4.4). */
  bootstrap(candidate: Candidate): Upstream {
    return this.#get(this.#bootstraps, candidate, null);
  }

  #get(pools: Map<string, Upstream>, { authority }: Candidate, stage: TlsStage | null): Upstream {
    const known = pools.get(authority);
    if (known !== undefined) {
      pools.delete(authority);
      pools.set(authority, known);
      return known;
    }
    const upstream = this.#make(authority, stage);
    pools.set(authority, upstream);
    if (pools.size > MAX_POOLS_PER_STAGE) {
      const [oldest] = pools;
      if (oldest !== undefined) {
        pools.delete(oldest[0]);
        oldest[1].close().catch(() => undefined);
      }
    }
    return upstream;
  }

  #make(authority: string, stage: TlsStage | null): Upstream {
    const { enableTls, tlsInsecureSkipVerify, maxIdleConnsPerHost } = this.#options;
    return new Upstream(authority, stage !== null && enableTls.includes(stage) ? { verify: !tlsInsecureSkipVerify.includes(stage) } : null, maxIdleConnsPerHost);
  }

  /** What is kept now, by stage. */
  stats(): Record<"encode" | "prefill" | "decode" | "bootstrap", { readonly pools: number; readonly connections: number }> {
    const count = (upstreams: readonly Upstream[]): { pools: number; connections: number } => ({
      pools: upstreams.length,
      connections: upstreams.reduce((sum, upstream) => sum + upstream.connections, 0),
    });
    return { encode: count([...this.#encoders.values()]), prefill: count([...this.#prefillers.values()]), decode: count(this.decoders), bootstrap: count([...this.#bootstraps.values()]) };
  }

  async destroy(): Promise<void> {
    await Promise.all([...this.decoders, ...this.#prefillers.values(), ...this.#encoders.values(), ...this.#bootstraps.values()].map((upstream) => upstream.destroy()));
  }
}
