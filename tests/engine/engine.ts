/** One simulated engine: its ports, its lives, its records and scripts. */

import type { IncomingMessage, ServerResponse } from "node:http";

import { sleep } from "./core/time.js";
import { EngineDeath, EngineRestart } from "./errors.js";
import { Incarnation } from "./incarnation.js";
import { joinHostPort, resolveOptions, type ResolvedOptions } from "./options.js";
import { headerPairs, Recorder } from "./record.js";
import { ScriptQueue, STAGES } from "./script.js";
import { MODEL_PATHS, serve } from "./server/app.js";
import { serveControl, type Controlled } from "./server/control.js";
import { Exchange } from "./server/exchange.js";
import type { AppHost } from "./server/host.js";
import { Listener } from "./server/listener.js";
import { watchRefusals } from "./server/refusal.js";
import { roleStage } from "./stage.js";
import type { Engine, EngineOptions, EngineRecord, EngineState, Role, Script, ScriptEntry, Stage } from "./types.js";

/** How long a dying engine takes to answer what is in flight before its connections are cut. */
const DYING_MS = 500;

class SimulatedEngine implements Engine, AppHost, Controlled {
  readonly options: ResolvedOptions;
  private current: Incarnation | null = null;
  private readonly service: Listener;
  private readonly control: Listener;
  private readonly recorder: Recorder;
  private readonly open = new Set<Exchange>();
  private readonly scripts = new Map<Stage, ScriptQueue>();
  private readonly unsubscribe = new Map<Stage, () => void>();
  private stopWatching: (() => void) | null = null;
  private attempts = 0;
  private deathReason: string | null = null;
  private closing = false;

  constructor(options: EngineOptions) {
    this.options = resolveOptions(options);
    const { host, port, controlPort, keepAliveMs, tls } = this.options;
    this.recorder = new Recorder(this.options.name, this.options.maxRecords, this.options.maxRecordedBytes);
    this.service = new Listener({ host, port, keepAliveMs, ...(tls === undefined ? {} : { tls }) }, (request, response) => {
      void this.onRequest(request, response);
    });
    this.control = new Listener({ host, port: controlPort, keepAliveMs: 60_000 }, (request, response) => {
      void this.onControl(request, response);
    });
  }

  get name(): string {
    return this.options.name;
  }

  get role(): Role {
    return this.options.role;
  }

  get host(): string {
    return this.options.host;
  }

  get port(): number {
    return this.service.port;
  }

  get controlPort(): number {
    return this.control.port;
  }

  get url(): string {
    return `${this.options.tls === undefined ? "http" : "https"}://${joinHostPort(this.host, this.port)}`;
  }

  get controlUrl(): string {
    return `http://${joinHostPort(this.host, this.controlPort)}`;
  }

  get engineId(): string {
    return this.life.services.engineId;
  }

  get bootstrapPort(): number {
    return this.life.connector.bootstrapPort ?? 0;
  }

  get life(): Incarnation {
    if (this.current === null) throw new Error("the engine has not started");
    return this.current;
  }

  get dead(): string | null {
    return this.deathReason;
  }

  async start(): Promise<void> {
    try {
      await this.control.listen();
      await this.begin();
      await this.service.listen();
    } catch (error) {
      await this.close();
      throw error;
    }
    for (const stage of STAGES) {
      const queue = this.options.scripts[stage];
      if (queue !== undefined) this.setScript(queue, stage);
    }
  }

  async close(): Promise<void> {
    this.closing = true;
    this.watch(null);
    for (const off of this.unsubscribe.values()) off();
    this.unsubscribe.clear();
    await Promise.all([this.service.close(), this.control.close()]);
    await this.current?.close();
  }

  records(): EngineRecord[] {
    return this.recorder.list();
  }

  clearRecords(): void {
    this.recorder.clear();
    this.attempts = 0;
  }

  setScript(script: Script | ScriptQueue | null, stage?: Stage): void {
    const queue = script === null || script instanceof ScriptQueue ? script : new ScriptQueue(script);
    for (const each of stage === undefined ? STAGES : [stage]) {
      this.unsubscribe.get(each)?.();
      this.unsubscribe.delete(each);
      if (queue === null) {
        this.scripts.delete(each);
        continue;
      }
      this.scripts.set(each, queue);
      this.unsubscribe.set(each, queue.onChange(() => {
        this.followRefusal();
      }));
    }
    this.followRefusal();
  }

  takeScript(stage: Stage): ScriptEntry | null {
    return this.scripts.get(stage)?.take().entry ?? null;
  }

  state(): EngineState {
    const { pool, transfers, scheduler } = this.life.services;
    const now = performance.now();
    return {
      name: this.name,
      role: this.role,
      engineId: this.engineId,
      url: this.url,
      controlPort: this.controlPort,
      dead: this.deathReason,
      heldTransfers: transfers.list().map((held) => ({ requestId: held.requestId, blocks: held.blockIds.length, tokens: held.tokens, expiresInMs: held.expiresAt - now })),
      expiredTransfers: transfers.expired,
      heldEmbeddings: this.life.encoder.heldHashes(),
      blocks: { total: pool.total, used: pool.used, pinned: transfers.pinnedBlocks, cached: pool.cached, usage: pool.usage },
      running: scheduler.running,
      waiting: scheduler.waiting,
      openRequests: this.recorder.openRequests,
      maxInFlight: this.recorder.maxInFlight,
      attempts: this.attempts,
      connections: this.service.connections,
      calls: this.recorder.calls(),
    };
  }

  async reset(): Promise<void> {
    this.setScript(null);
    const old = this.life;
    // Idle connections stay: a client's pool must not find out in its next request that the test has begun anew.
    for (const exchange of this.open) {
      exchange.kill(new EngineRestart());
      exchange.reset();
    }
    await old.close();
    this.deathReason = null;
    this.clearRecords();
    await this.begin();
    await this.service.listen();
  }

  async idle(timeoutMs = 10_000): Promise<boolean> {
    const until = performance.now() + timeoutMs;
    const never = new AbortController().signal;
    while (this.open.size > 0) {
      if (performance.now() > until) return false;
      await sleep(2, never);
    }
    return true;
  }

  openCalls(): number {
    return [...this.open].filter((exchange) => exchange.record.modelCall).length;
  }

  die(reason: string): void {
    if (this.deathReason !== null || this.closing) return;
    this.deathReason = reason;
    for (const exchange of this.open) exchange.kill(new EngineDeath(reason));
    void this.stopServing();
  }

  /** Lets what is in flight have its error, then the process is gone. */
  private async stopServing(): Promise<void> {
    const life = this.life;
    await this.idle(DYING_MS);
    if (this.life !== life || this.closing) return;
    this.service.refuse();
    this.service.destroyConnections();
    life.services.transfers.clear();
  }

  private async begin(): Promise<void> {
    this.current = new Incarnation(this.options, this.controlPort);
    await this.current.start();
    // A restart must not move the port that sidecars know.
    this.options.bootstrapPort = this.bootstrapPort;
  }

  private async onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = request.url ?? "/";
    const path = url.split("?", 1)[0] ?? url;
    if (path.startsWith("/_sim/")) {
      await this.onControl(request, response);
      return;
    }
    const method = request.method ?? "GET";
    const modelCall = method === "POST" && MODEL_PATHS.includes(path);
    const record = this.recorder.begin({ stage: roleStage(this.role), modelCall, method, path: url, rawHeaders: headerPairs(request.rawHeaders) });
    const exchange = new Exchange(request, response, record, this.recorder);
    this.open.add(exchange);
    response.once("close", () => {
      this.open.delete(exchange);
    });
    exchange.onAnswered(() => {
      // No keep-alive through a port that refuses.
      if (!this.service.listening) request.socket.end();
    });
    await serve(this, exchange, path);
  }

  private async onControl(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await serveControl(this, request, response);
    } catch (error) {
      if (!response.headersSent) response.writeHead(500, { "content-type": "text/plain" });
      response.end(error instanceof Error ? error.message : String(error));
    }
  }

  /** Whether the next call of any of this engine's stages is to be refused. */
  private refusedQueue(): [Stage, ScriptQueue] | null {
    for (const stage of this.ownStages()) {
      const queue = this.scripts.get(stage);
      if (queue?.peek().tcp === "refused") return [stage, queue];
    }
    return null;
  }

  private ownStages(): Stage[] {
    if (this.role === "prefill-decode") return ["prefill", "decode"];
    return this.role === "encode-prefill-decode" ? [...STAGES] : [roleStage(this.role)];
  }

  private followRefusal(): void {
    if (this.closing || this.deathReason !== null || this.current === null) return;
    const refused = this.refusedQueue();
    this.watch(refused);
    if (refused !== null) {
      this.service.refuse();
      return;
    }
    // The port was ours a moment ago; if somebody has taken it, the record of this engine says so.
    this.service.listen().catch((error: unknown) => {
      this.die(`cannot listen again: ${error instanceof Error ? error.message : String(error)}`);
    });
  }

  private watch(refused: [Stage, ScriptQueue] | null): void {
    this.stopWatching?.();
    this.stopWatching = null;
    if (refused === null || !this.options.watchRefusals) return;
    const [stage, queue] = refused;
    this.stopWatching = watchRefusals(queue, () => {
      this.attempts += 1;
      this.recorder.refused(stage);
      queue.take();
    });
  }
}

/**
 * Starts an engine.
 *
 * @throws OptionError that names a wrong option, or the system's error when a port is taken
 */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  const engine = new SimulatedEngine(options);
  await engine.start();
  return engine;
}
