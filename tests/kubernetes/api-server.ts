/** A real kube-apiserver with etcd behind it, on loopback, for what is about Kubernetes. `build.sh` makes the programs; where they are not there, the specs say so and are not run. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { get } from "node:https";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { KubeConfig } from "@kubernetes/client-node";
import { freePort } from "../fleet/ports.js";
import { Child } from "../fleet/processes.js";
import { inRoot } from "../fleet/root.js";

/** A user without any right of its own: what a Role gives it is what it can do. */
export const PLAIN_USER = "sidecar";

const VERSION = "1.34.3";
const START_TIMEOUT_MS = 120_000;

export interface Programs {
  readonly apiServer: string;
  readonly etcd: string;
}

/** Where the programs are, or why they are not there. */
export function findPrograms(env: NodeJS.ProcessEnv = process.env): Programs | { readonly missing: string } {
  const folder = env["KUBERNETES_BIN"] ?? join(env["CROSSPOINT_CACHE"] ?? inRoot(".cache"), `kubernetes-${VERSION}`);
  const apiServer = join(folder, "kube-apiserver");
  if (!existsSync(apiServer)) return { missing: `there is no ${apiServer} (tests/kubernetes/build.sh makes it, with Go 1.26)` };
  const etcd = [folder, ...(env["PATH"] ?? "").split(delimiter)].map((path) => join(path, "etcd")).find((path) => existsSync(path));
  return etcd === undefined ? { missing: `there is no etcd, neither in ${folder} nor in PATH` } : { apiServer, etcd };
}

export class ApiServer {
  readonly #programs: Programs;
  readonly #folder: string;
  readonly #etcdPort: number;
  readonly #port: number;
  readonly #tokens = new Map<string, string>();
  #etcd: Child | null = null;
  #server: Child | null = null;

  private constructor(programs: Programs, folder: string, etcdPort: number, port: number) {
    this.#programs = programs;
    this.#folder = folder;
    this.#etcdPort = etcdPort;
    this.#port = port;
  }

  static async start(programs: Programs): Promise<ApiServer> {
    const made = new ApiServer(programs, mkdtempSync(join(tmpdir(), "crosspoint-kube-")), await freePort(), await freePort());
    made.#prepare();
    await made.#startEtcd();
    await made.startServer();
    return made;
  }

  #prepare(): void {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    mkdirSync(join(this.#folder, "pki"));
    writeFileSync(join(this.#folder, "pki", "sa.key"), privateKey.export({ type: "pkcs1", format: "pem" }));
    writeFileSync(join(this.#folder, "pki", "sa.pub"), publicKey.export({ type: "spki", format: "pem" }));
    for (const user of ["admin", PLAIN_USER]) this.#tokens.set(user, randomBytes(16).toString("hex"));
    const lines = [...this.#tokens].map(([user, token], index) => `${token},${user},${String(index)}${user === "admin" ? ',"system:masters"' : ""}`);
    writeFileSync(join(this.#folder, "pki", "tokens.csv"), lines.join("\n"), { mode: 0o600 });
  }

  async #startEtcd(): Promise<void> {
    const url = `http://127.0.0.1:${String(this.#etcdPort)}`;
    this.#etcd = new Child({
      name: "etcd",
      command: this.#programs.etcd,
      args: [
        `--data-dir=${join(this.#folder, "etcd")}`,
        `--listen-client-urls=${url}`,
        `--advertise-client-urls=${url}`,
        "--listen-peer-urls=http://127.0.0.1:0",
        "--initial-advertise-peer-urls=http://127.0.0.1:0",
        "--initial-cluster=default=http://127.0.0.1:0",
      ],
    });
    const healthy = (): Promise<boolean> => fetch(`${url}/health`, { signal: AbortSignal.timeout(1000) }).then(({ ok }) => ok, () => false);
    await this.#etcd.until("health", healthy, START_TIMEOUT_MS);
  }

  /** Starts the server, anew after {@link stopServer}: at the same place, with what etcd holds. */
  async startServer(): Promise<void> {
    const pki = join(this.#folder, "pki");
    this.#server = new Child({
      name: "kube-apiserver",
      command: this.#programs.apiServer,
      args: [
        `--etcd-servers=http://127.0.0.1:${String(this.#etcdPort)}`,
        "--bind-address=127.0.0.1",
        `--secure-port=${String(this.#port)}`,
        `--cert-dir=${join(pki, "certs")}`,
        "--service-account-issuer=https://kubernetes.default",
        `--service-account-signing-key-file=${join(pki, "sa.key")}`,
        `--service-account-key-file=${join(pki, "sa.pub")}`,
        `--token-auth-file=${join(pki, "tokens.csv")}`,
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.250.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--shutdown-delay-duration=0s",
      ],
    });
    await this.#server.until("readiness", () => this.#answers(), START_TIMEOUT_MS);
  }

  #answers(): Promise<boolean> {
    return new Promise((resolve) => {
      const request = get(
        { host: "127.0.0.1", port: this.#port, path: "/readyz", agent: false, rejectUnauthorized: false, timeout: 2000, headers: { authorization: `Bearer ${this.#tokens.get("admin") ?? ""}` } },
        (response) => {
          response.resume();
          resolve(response.statusCode === 200);
        },
      );
      request.on("timeout", () => request.destroy());
      request.on("error", () => {
        resolve(false);
      });
    });
  }

  /** Ends the server, and with it every watch; etcd stays. */
  async stopServer(): Promise<void> {
    await this.#server?.stop();
  }

  /** A configuration as users have it: the server's own certificate verified, a token. */
  kubeconfig(user: "admin" | typeof PLAIN_USER): string {
    const path = join(this.#folder, `${user}.kubeconfig`);
    const ca = readFileSync(join(this.#folder, "pki", "certs", "apiserver.crt")).toString("base64");
    const config = {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "t", cluster: { server: `https://127.0.0.1:${String(this.#port)}`, "certificate-authority-data": ca } }],
      users: [{ name: user, user: { token: this.#tokens.get(user) ?? "" } }],
      contexts: [{ name: "t", context: { cluster: "t", user, namespace: "default" } }],
      "current-context": "t",
    };
    writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
    return path;
  }

  config(user: "admin" | typeof PLAIN_USER = "admin"): KubeConfig {
    const config = new KubeConfig();
    config.loadFromFile(this.kubeconfig(user));
    return config;
  }

  async close(): Promise<void> {
    await this.#server?.stop();
    await this.#etcd?.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
