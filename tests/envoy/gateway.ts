/** A real Envoy with a rendered bootstrap, in front of pods of a test's own. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { DEFAULT_SETTINGS, loadValidator, renderOnce, type RenderResult, type Settings, type Validator } from "../../envoy/index.js";
import { AccessLog, type AccessLine } from "../fleet/access-log.js";
import { Envoy, saysPortTaken } from "../fleet/envoy.js";
import { type Answer, headerLines, type RequestOptions, send } from "../fleet/http.js";
import { type EndpointEntry, pickerDocument } from "../fleet/picker.js";
import { freePort } from "../fleet/ports.js";
import { built, inRoot } from "../fleet/root.js";
import { compileStandIn } from "./stand-in.js";

/**
 * Which module the tests run: the stand-in, or the one that CROSSPOINT_TEST_FILTER names (build/filter.wasm). What only the stand-in can show (requests that say where
 * they go) is then left out.
 */
const NAMED_FILTER = process.env["CROSSPOINT_TEST_FILTER"] ?? "";
export const WITH_STAND_IN = NAMED_FILTER === "";

let standIn: Promise<Buffer> | undefined;
export async function testModule(): Promise<Buffer> {
  if (!WITH_STAND_IN) return readFileSync(inRoot(NAMED_FILTER));
  standIn ??= compileStandIn();
  return standIn;
}

let validator: Promise<Validator> | undefined;
export function testValidator(): Promise<Validator> {
  validator ??= loadValidator(process.env["CROSSPOINT_SCANNER"] ?? built("scanner.wasm"));
  return validator;
}

export interface Target {
  name: string;
  host: string;
  port: number;
  role?: string;
}

export function entryOf(target: Target): EndpointEntry {
  const role = target.role ?? "decode";
  return { name: target.name, namespace: "default", address: target.host, port: target.port.toString(), labels: { role, "llm-d.ai/role": role } };
}

export interface GatewayOptions {
  endpoints: readonly Target[];
  /** FilterOptions without apiVersion and kind. */
  options?: Readonly<Record<string, unknown>>;
  settings?: Partial<Settings>;
  picker?: unknown;
  module?: Uint8Array;
  concurrency?: number;
}

export class Gateway {
  private constructor(
    readonly folder: string,
    readonly settings: Settings,
    private envoy: Envoy | null,
    readonly log: AccessLog,
  ) {}

  /** The inputs and what was rendered of them, without an Envoy. */
  static async render(options: GatewayOptions): Promise<Gateway> {
    const parent = inRoot("build", "gateways");
    mkdirSync(parent, { recursive: true });
    const folder = mkdtempSync(join(parent, `${process.pid.toString()}-`));
    const own = async (): Promise<{ host: string; port: number }> => ({ host: "127.0.0.1", port: await freePort() });
    const settings: Settings = {
      ...DEFAULT_SETTINGS,
      listen: await own(),
      admin: await own(),
      state: await own(),
      accessLog: join(folder, "access.log"),
      ...options.settings,
    };
    const gateway = new Gateway(folder, settings, null, new AccessLog(settings.accessLog));
    writeFileSync(join(folder, "filter.wasm"), options.module ?? (await testModule()));
    gateway.writePicker(options.picker ?? pickerDocument({ prefill: true, encode: true }));
    gateway.writeOptions(options.options ?? {});
    gateway.writeEndpoints(options.endpoints);
    const result = await gateway.renderAgain();
    if (result.publication === null) throw new Error(`not rendered: ${JSON.stringify(result.problems)}`);
    return gateway;
  }

  /** Renders and starts; a port that was taken meanwhile leads to another try. */
  static async start(options: GatewayOptions): Promise<Gateway> {
    for (let attempt = 1; ; attempt++) {
      const gateway = await Gateway.render(options);
      try {
        await gateway.startEnvoy(options.concurrency);
        return gateway;
      } catch (error) {
        await gateway.stop();
        if (attempt === 3 || !saysPortTaken(error)) throw error;
      }
    }
  }

  async startEnvoy(concurrency = 1): Promise<void> {
    this.envoy = await Envoy.start({ bootstrap: this.bootstrap, admin: this.settings.admin, concurrency });
  }

  get running(): Envoy {
    if (this.envoy === null) throw new Error("Envoy is not started");
    return this.envoy;
  }

  /** The folder that Envoy reads. */
  get out(): string {
    return join(this.folder, "envoy");
  }

  get bootstrap(): string {
    return join(this.out, "bootstrap.yaml");
  }

  file(name: string): string {
    return join(this.folder, name);
  }

  writePicker(picker: unknown): void {
    writeFileSync(this.file("epp.yaml"), stringify(picker));
  }

  writeOptions(options: Readonly<Record<string, unknown>>): void {
    writeFileSync(this.file("options.yaml"), stringify({ apiVersion: "crosspoint/v1", kind: "FilterOptions", ...options }));
  }

  writeEndpoints(targets: readonly Target[]): void {
    writeFileSync(this.file("endpoints.yaml"), stringify({ endpoints: targets.map(entryOf) }));
  }

  async renderAgain(): Promise<RenderResult> {
    const job = {
      config: this.file("epp.yaml"),
      options: this.file("options.yaml"),
      endpoints: this.file("endpoints.yaml"),
      wasm: this.file("filter.wasm"),
      out: this.out,
      settings: this.settings,
    };
    return renderOnce(job, await testValidator());
  }

  /** One HTTP/1.1 request on a connection of its own. */
  send(request: Partial<RequestOptions> & { path: string }): Promise<Answer> {
    return send({ host: this.settings.listen.host, port: this.settings.listen.port, method: "GET", ...request });
  }

  /** Envoy's counters and gauges. */
  stat(name: string): Promise<number> {
    return this.running.admin.stats().then((stats) => stats.get(name) ?? 0);
  }

  /** The line of the access log of the request with that id, once it is written. */
  async logged(requestId: string): Promise<AccessLine> {
    return until(`a line of the access log for ${requestId}`, () => this.log.lines().find((line) => line.requestId === requestId));
  }

  async stop(): Promise<void> {
    await this.envoy?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Asks again until there is an answer. Throws when there is none in time. */
export async function until<T>(what: string, ask: () => T | undefined | null | false | Promise<T | undefined | null | false>, timeoutMs = 30_000): Promise<T> {
  const endAt = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== null && answer !== false) return answer;
    if (performance.now() > endAt) throw new Error(`no ${what} within ${(timeoutMs / 1000).toString()} s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function json(answer: Pick<Answer, "body">): unknown {
  return JSON.parse(answer.body.toString("utf8"));
}

export interface ErrorBody {
  error: { message: string; type: string; param: string | null; code: number };
}

/** The body of an error in OpenAI's shape; throws when it is not one. */
export function errorOf(answer: Answer): ErrorBody["error"] {
  const type = headerLines(answer.headers, "content-type");
  if (type.length !== 1 || type[0] !== "application/json") throw new Error(`content-type ${type.join(" | ")}`);
  const body = json(answer) as Partial<ErrorBody>;
  const error = body.error;
  if (error === undefined || typeof error.message !== "string" || error.message === "" || typeof error.type !== "string" || error.type === "" || error.param !== null) {
    throw new Error(`not an error in OpenAI's shape: ${answer.body.toString("utf8")}`);
  }
  return error;
}
