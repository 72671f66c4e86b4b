/** The allowlist that is made from an InferencePool, against a real API server: C-SR-…, and what a cluster does to a watch. */
import { CoreV1Api, type KubernetesObject, KubernetesObjectApi } from "@kubernetes/client-node";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Sidecar } from "../../sidecar/server.js";
import { ask, errorOf, metric, startTestSidecar } from "../../sidecar/testkit/harness.js";
import { sendJson, TestUpstream } from "../../sidecar/testkit/upstream.js";
import { ApiServer, findPrograms, PLAIN_USER } from "./api-server.js";
import { ALPHA, GA, poolDefinition, VERSIONS } from "./inference-pools.js";

const programs = findPrograms();
const missing = "missing" in programs ? programs.missing : null;
if (missing !== null) process.stderr.write(`\nNOT RUN: tests/kubernetes: ${missing}\n\n`);

const LABELS = { app: "vllm", "llm-d.ai/model": "m" };
const EVENT_MS = 10_000;
const UP_MS = 240_000;

describe.skipIf(missing !== null)(`allowlist from an InferencePool${missing === null ? "" : ` (not run: ${missing})`}`, () => {
  let api: ApiServer;
  let objects: KubernetesObjectApi;
  let core: CoreV1Api;
  let engine: TestUpstream;
  let prefiller: TestUpstream;
  let encoder: TestUpstream;
  const kubeconfigBefore = process.env["KUBECONFIG"];
  const running: Sidecar[] = [];
  let namespaces = 0;

  beforeAll(async () => {
    if ("missing" in programs) return;
    api = await ApiServer.start(programs);
    objects = KubernetesObjectApi.makeApiClient(api.config());
    core = api.config().makeApiClient(CoreV1Api);
    for (const group of [GA, ALPHA]) await objects.create(poolDefinition(group) as KubernetesObject);
    for (const group of [GA, ALPHA]) await eventually(`${group} is served`, () => objects.list(`${group}/${VERSIONS[group] ?? ""}`, "InferencePool", "default").then(() => true, () => false), true);
    engine = await TestUpstream.start();
    prefiller = await TestUpstream.start((_, response) => {
      sendJson(response, '{"kv_transfer_params":{"a":1}}');
    }, null, "0.0.0.0");
    encoder = await TestUpstream.start();
  }, UP_MS);

  afterAll(async () => {
    if (kubeconfigBefore === undefined) delete process.env["KUBECONFIG"];
    else process.env["KUBECONFIG"] = kubeconfigBefore;
    await Promise.all([engine, prefiller, encoder].map((one) => one.close()));
    await api.close();
  }, UP_MS);

  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.close()));
  });

  async function eventually<T>(what: string, look: () => Promise<T>, wanted: T, timeoutMs = EVENT_MS): Promise<void> {
    const endsAt = performance.now() + timeoutMs;
    for (;;) {
      const found = await look();
      if (found === wanted) return;
      if (performance.now() > endsAt) throw new Error(`${what}: still ${String(found)}, not ${String(wanted)}`);
      await sleep(30);
    }
  }

  async function namespace(): Promise<string> {
    const name = `t${String(++namespaces)}`;
    await core.createNamespace({ body: { metadata: { name } } });
    return name;
  }

  /** A pod as it is once a kubelet has started it: this cluster has none. */
  async function pod(ns: string, name: string, ip: string, { labels = LABELS, subdomain, phase = "Running" }: { labels?: Record<string, string>; subdomain?: string; phase?: string } = {}): Promise<void> {
    await core.createNamespacedPod({ namespace: ns, body: { metadata: { name, labels }, spec: { containers: [{ name: "c", image: "i" }], ...(subdomain === undefined ? {} : { subdomain }) } } });
    await setStatus(ns, name, ip, phase);
  }

  async function setStatus(ns: string, name: string, ip: string, phase: string): Promise<void> {
    const made = await core.readNamespacedPod({ namespace: ns, name });
    await core.replaceNamespacedPodStatus({ namespace: ns, name, body: { ...made, status: { phase, podIP: ip, podIPs: [{ ip }] } } });
  }

  function poolObject(group: string, ns: string, spec: unknown): KubernetesObject & { spec: unknown } {
    return { apiVersion: `${group}/${VERSIONS[group] ?? ""}`, kind: "InferencePool", metadata: { name: "pool", namespace: ns }, spec };
  }

  const gaSpec = (port: number, labels: Record<string, string> = LABELS): unknown => ({ selector: { matchLabels: labels }, targetPorts: [{ number: port }] });

  async function sidecar(ns: string, flags: string[] = [], user: "admin" | typeof PLAIN_USER = "admin", lines: string[] = []): Promise<Sidecar> {
    process.env["KUBECONFIG"] = api.kubeconfig(user);
    const made = await startTestSidecar(engine, ["--enable-ssrf-protection", `--inference-pool=${ns}/pool`, "--ec-connector=ec-example", ...flags], {}, lines);
    running.push(made);
    return made;
  }

  async function asked({ url }: Sidecar, entry: string): Promise<number> {
    return (await ask(url, { headers: ["x-prefiller-host-port", entry], body: '{"messages":[]}' })).status;
  }

  async function ready({ url }: Sidecar): Promise<number> {
    return (await ask(url, { method: "GET", target: "/ready" })).status;
  }

  for (const group of [GA, ALPHA]) {
    it(`C-SR-02 C-SR-03 C-SR-04: ${group}: the pool's pods on the pool's ports, and nobody else`, async () => {
      const ns = await namespace();
      const spec = group === GA ? gaSpec(prefiller.port) : { selector: LABELS, targetPortNumber: prefiller.port };
      await objects.create(poolObject(group, ns, spec));
      await pod(ns, "p-0", "127.0.0.2", { subdomain: "workers" });
      await pod(ns, "other", "127.0.0.3", { labels: { app: "other" } });
      await pod(ns, "done", "127.0.0.4", { phase: "Succeeded" });
      const one = await sidecar(ns, [`--pool-group=${group}`]);
      await eventually("readiness", () => ready(one), 200);
      const { port } = prefiller;
      const calls = prefiller.received.length;
      expect(await asked(one, `127.0.0.2:${String(port)}`)).toBe(200);
      expect(prefiller.received.length).toBe(calls + 1);

      const denied = await ask(one.url, { headers: ["x-prefiller-host-port", `127.0.0.3:${String(port)}`], body: "{}" });
      expect([denied.status, errorOf(denied)]).toEqual([403, { message: "the routing header names a prefiller that is not allowed", type: "ForbiddenError", param: "x-prefiller-host-port", code: 403 }]);
      for (const entry of [`127.0.0.2:${String(engine.port)}`, `127.0.0.4:${String(port)}`, `127.0.0.1:${String(port)}`, `other:${String(port)}`]) expect([entry, await asked(one, entry)]).toEqual([entry, 403]);
      expect(prefiller.received.length).toBe(calls + 1);
      expect(await metric(one, "denied_targets_total", { stage: "prefill" })).toBe(5);

      // Its names: allowed, though nothing here resolves them, so the call itself fails.
      for (const name of ["p-0", `127-0-0-2.${ns}.pod`, `127-0-0-2.${ns}.pod.cluster.local`, "p-0.workers", `p-0.workers.${ns}.svc.cluster.local`]) expect([name, await asked(one, `${name}:${String(port)}`)]).toEqual([name, 502]);
      expect(await asked(one, `p-0.workers.elsewhere.svc:${String(port)}`)).toBe(403);
    });
  }

  it("follows pods and the pool as they come, change and go", async () => {
    const ns = await namespace();
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port)));
    const one = await sidecar(ns);
    await eventually("readiness", () => ready(one), 200);
    const entry = `127.0.0.2:${String(prefiller.port)}`;
    expect(await asked(one, entry)).toBe(403);

    await pod(ns, "p-0", "127.0.0.2");
    await eventually("a new pod", () => asked(one, entry), 200);
    await setStatus(ns, "p-0", "127.0.0.5", "Running");
    await eventually("its old address", () => asked(one, entry), 403);
    expect(await asked(one, `127.0.0.5:${String(prefiller.port)}`)).toBe(200);
    await setStatus(ns, "p-0", "127.0.0.2", "Running");
    await eventually("its new address", () => asked(one, entry), 200);

    // Taken out of the pool by its labels.
    const made = await core.readNamespacedPod({ namespace: ns, name: "p-0" });
    await core.replaceNamespacedPod({ namespace: ns, name: "p-0", body: { ...made, metadata: { ...made.metadata, labels: { app: "other" } } } });
    await eventually("a pod whose labels changed", () => asked(one, entry), 403);
    await core.deleteNamespacedPod({ namespace: ns, name: "p-0", gracePeriodSeconds: 0 });
    await pod(ns, "p-1", "127.0.0.2");
    await eventually("the next pod", () => asked(one, entry), 200);
    await core.deleteNamespacedPod({ namespace: ns, name: "p-1", gracePeriodSeconds: 0 });
    await eventually("a pod that is gone", () => asked(one, entry), 403);

    await pod(ns, "p-2", "127.0.0.2", { labels: { app: "newer" } });
    const change = async (spec: unknown): Promise<void> => {
      const current = await objects.read<KubernetesObject & { spec?: unknown }>({ apiVersion: `${GA}/v1`, kind: "InferencePool", metadata: { name: "pool", namespace: ns } });
      await objects.replace({ ...current, spec });
    };
    await change(gaSpec(prefiller.port, { app: "newer" }));
    await eventually("the pool's new selector", () => asked(one, entry), 200);
    await change(gaSpec(1, { app: "newer" }));
    await eventually("the pool's new port", () => asked(one, entry), 403);
    await change(gaSpec(prefiller.port, { app: "newer" }));
    await eventually("the pool's old port", () => asked(one, entry), 200);
    await objects.delete(poolObject(GA, ns, {}));
    await eventually("a pool that is gone", () => asked(one, entry), 403);
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port, { app: "newer" })));
    await eventually("a pool that is back", () => asked(one, entry), 200);
  });

  it("fails closed until the pool is there: not ready, nothing allowed, and served all the same without a prefiller", async () => {
    const ns = await namespace();
    await pod(ns, "p-0", "127.0.0.2");
    const one = await sidecar(ns);
    const entry = `127.0.0.2:${String(prefiller.port)}`;
    await sleep(300);
    expect([await ready(one), await asked(one, entry), (await ask(one.url, { body: "{}" })).status]).toEqual([503, 403, 200]);
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port)));
    await eventually("readiness", () => ready(one), 200);
    expect(await asked(one, entry)).toBe(200);
  });

  it("C-EC-13: encoders and KV sources that are not allowed are left out; extra ports are allowed on known hosts", async () => {
    const ns = await namespace();
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port)));
    await pod(ns, "p-0", "127.0.0.2");
    await pod(ns, "e-0", "127.0.0.1");
    const one = await sidecar(ns, [`--allow-port=${String(encoder.port)}`, "--enable-p2p-pull"]);
    await eventually("readiness", () => ready(one), 200);
    const body = '{"messages":[{"content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"image_url","image_url":{"url":"v"}}]}]}';
    const encoded = encoder.received.length;
    const partly = await ask(one.url, { headers: ["x-encoder-hosts-ports", `10.9.9.9:1,${encoder.authority},127.0.0.9:${String(encoder.port)}`], body });
    expect([partly.status, encoder.received.length - encoded]).toEqual([200, 2]);
    const none = await ask(one.url, { headers: ["x-encoder-hosts-ports", "10.9.9.9:1", "x-kv-cache-source-host-port", "10.9.9.9:1"], body });
    expect([none.status, encoder.received.length - encoded, engine.text()]).toEqual([200, 2, body]);
    expect([await metric(one, "denied_targets_total", { stage: "encode" }), await metric(one, "denied_targets_total", { stage: "kv_source" })]).toEqual([3, 1]);
    await ask(one.url, { headers: ["x-kv-cache-source-host-port", `127.0.0.2:${String(prefiller.port)}`], body });
    expect(engine.text()).toContain('"remote_host":"127.0.0.2"');
  });

  it("needs list and watch of the two kinds in the pool's namespace, and nothing more", async () => {
    const ns = await namespace();
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port)));
    await pod(ns, "p-0", "127.0.0.2");
    const lines: string[] = [];
    const one = await sidecar(ns, [], PLAIN_USER, lines);
    await eventually("the refusal in the log", () => Promise.resolve(lines.some((line) => line.includes("cannot be read") && line.includes('"status":403'))), true);
    expect([await ready(one), await asked(one, `127.0.0.2:${String(prefiller.port)}`)]).toEqual([503, 403]);
    const rules = [
      { apiGroups: [GA], resources: ["inferencepools"], verbs: ["list", "watch"] },
      { apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"] },
    ];
    await objects.create({ apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", metadata: { name: "sidecar", namespace: ns }, rules } as KubernetesObject);
    await objects.create({
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { name: "sidecar", namespace: ns },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "sidecar" },
      subjects: [{ kind: "User", name: PLAIN_USER, apiGroup: "rbac.authorization.k8s.io" }],
    } as KubernetesObject);
    await eventually("readiness", () => ready(one), 200, 20_000);
    expect(await asked(one, `127.0.0.2:${String(prefiller.port)}`)).toBe(200);
  });

  it("lists once, and not again on a timer", async () => {
    const ns = await namespace();
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port)));
    const one = await sidecar(ns);
    await eventually("readiness", () => ready(one), 200);
    const before = await metric(one, "allowlist_updates_total", { source: "pods", outcome: "taken" });
    await sleep(1500);
    // Nothing happened, so nothing was listed anew (D11).
    expect(await metric(one, "allowlist_updates_total", { source: "pods", outcome: "taken" })).toBe(before);
  });

  it("while the API server is away what is known holds; once it is back its changes are taken up", async () => {
    const ns = await namespace();
    await objects.create(poolObject(GA, ns, gaSpec(prefiller.port)));
    await pod(ns, "p-0", "127.0.0.2");
    const one = await sidecar(ns);
    await eventually("readiness", () => ready(one), 200);
    await api.stopServer();
    await sleep(700);
    expect([await ready(one), await asked(one, `127.0.0.2:${String(prefiller.port)}`), await asked(one, `127.0.0.3:${String(prefiller.port)}`)]).toEqual([200, 200, 403]);
    await api.startServer();
    await pod(ns, "p-1", "127.0.0.3");
    await core.deleteNamespacedPod({ namespace: ns, name: "p-0", gracePeriodSeconds: 0 });
    await eventually("a pod that came since", () => asked(one, `127.0.0.3:${String(prefiller.port)}`), 200, 60_000);
    await eventually("a pod that has gone since", () => asked(one, `127.0.0.2:${String(prefiller.port)}`), 403);
  }, UP_MS);
});
