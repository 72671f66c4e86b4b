import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorOf, Gateway, json } from "./gateway.js";
import { type Echo, Pod } from "./pod.js";

let pod: Pod;
let gateway: Gateway;

beforeAll(async () => {
  pod = await Pod.start({ name: "d0" });
  gateway = await Gateway.start({ endpoints: [pod], options: { allowPaths: ["/custom", "/tools/*", "/c.d+(e)"] } });
});
afterAll(async () => {
  await gateway.stop();
  await pod.close();
});

/** Status, and the target that the pod saw; null where it saw nothing. */
async function ask(path: string, method = "GET"): Promise<{ status: number | null; url: string | null }> {
  const before = pod.requests.length;
  const answer = await gateway.send({ method, path, headers: [["Connection", "close"]], ...(method === "POST" ? { body: Buffer.from("{}") } : {}) });
  if (answer.status !== 200) {
    errorOf(answer);
    expect(pod.requests.length).toBe(before);
    return { status: answer.status, url: null };
  }
  return { status: 200, url: (json(answer) as Echo).url };
}

describe("served", () => {
  it.each([
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/models",
    "/v1/models/some-model",
    "/v1/responses/resp_1/cancel",
    "/v1/rerank",
    "/v1/audio/transcriptions",
    "/inference/v1/generate",
    "/generate",
    "/v2/rerank",
    "/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
    "/health",
    "/healthz",
    "/ping",
    "/version",
    "/custom",
    "/c.d+(e)",
    "/tools/a",
    "/tools/a/b",
  ])("%s, with GET and POST, a query and a slash at its end", async (path) => {
    expect(await ask(path)).toEqual({ status: 200, url: path });
    expect(await ask(path, "POST")).toEqual({ status: 200, url: path });
    expect(await ask(`${path}?beta=true&x=/../y`)).toEqual({ status: 200, url: `${path}?beta=true&x=/../y` });
    expect(await ask(`${path}/`)).toEqual({ status: 200, url: `${path}/` });
  });
});

describe("not there", () => {
  it.each([
    // Control paths (real-engine §4).
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/v1/load_lora_adapter/",
    "/v1/load_lora_adapter/x",
    "/v1/load_lora_adapter;x=y",
    "/v1/LOAD_LORA_ADAPTER",
    "/inference/v1/abort_requests",
    "/kv_event_sources",
    "/invocations",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/pause",
    "/resume",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/update_weights",
    "/load",
    "/server_info",
    "/start_profile",
    "/stop_profile",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/ready",
    // Nothing.
    "/",
    "/v1",
    "/v2/embed",
    "/inference/v1",
    "/inference/v1/generate/x",
    "/generate_stream",
    "/healthzz",
    "/health/x",
    "/HEALTH",
    "/V1/models",
    "/custom/x",
    "/cxd+(e)",
    "/c.dd(e)",
    "/tools",
    "/toolsmith",
    "/_sim/requests",
  ])("%s is 404, whatever the method", async (path) => {
    expect(await ask(path)).toEqual({ status: 404, url: null });
    expect(await ask(path, "POST")).toEqual({ status: 404, url: null });
    expect(await ask(`${path}?x=/v1/models`)).toEqual({ status: 404, url: null });
  });

  it("is said before the body is read", async () => {
    const body = Buffer.alloc(4 << 20, "a");
    const answer = await gateway.send({ method: "POST", path: "/sleep", body: null, headers: [["Content-Length", String(body.length)], ["X-Request-Id", "early-404"]], timeoutMs: 5_000 });
    expect(answer.status).toBe(404);
    const line = await gateway.logged("early-404");
    expect(line.decision).toBeNull();
  });
});

describe("a control path cannot be reached by spelling", () => {
  const word = "load_lora_adapter";
  const encoded = [...word].map((_, i) => `/v1/${word.slice(0, i)}%${word.charCodeAt(i).toString(16)}${word.slice(i + 1)}`);
  it.each([
    ...encoded,
    `/v1/${[...word].map((c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`).join("")}`,
    "//v1//load_lora_adapter",
    "/v1/./load_lora_adapter",
    "/v1/x/../load_lora_adapter",
    "/v1/%2e/load_lora_adapter",
    "/v1/x/%2e%2E/load_lora_adapter",
    "/v1%2fload_lora_adapter",
    "/v1%2Fx%2f..%2Fload_lora_adapter",
    "/v1/..%2fv1/load_lora_adapter",
    "/v1\\load_lora_adapter",
    "/v1%5cload_lora_adapter",
    "/v1/../sleep",
    "/v1/%2e%2e/sleep",
    "/v1/..%2fsleep",
    "/v1/%2e%2e%2fsleep",
    "/v1/..\\sleep",
    "/v1/..%5csleep",
    "/v1/a/b/../../../sleep",
    "/health/../sleep",
    "/tools/../sleep",
    "/%73leep",
    "//sleep",
    "/./sleep",
  ])("%s", async (path) => {
    expect((await ask(path, "POST")).status).toBe(404);
  });

  it("as an absolute URL", async () => {
    const { listen } = gateway.settings;
    const base = `http://${listen.host}:${String(listen.port)}`;
    expect((await ask(`${base}/v1/load_lora_adapter`)).status).toBe(404);
    expect((await ask(`${base}/v1/../sleep`)).status).toBe(404);
    expect(await ask(`${base}/v1/models`)).toEqual({ status: 200, url: "/v1/models" });
  });

  it.each(["/v1/models#/../../sleep", "/v1/a%00b", "/v1/a b", "/v1/\u00e9", "v1/models", "sleep", "*"])("%s is refused as no path", async (path) => {
    expect([400, 404]).toContain((await ask(path)).status);
  });

  it("what stays encoded is forwarded as it was sent", async () => {
    expect((await ask("/v1/models/a%20b%3fc%23d")).url).toBe("/v1/models/a%20b%3fc%23d");
    expect((await ask("/v1/models/org%2Fname")).url).toBe("/v1/models/org/name");
    expect((await ask("/v1/%256coad_lora_adapter")).url).toBe("/v1/%256coad_lora_adapter");
    expect((await ask("//v1///models")).url).toBe("/v1/models");
    // Read in another order this is /sleep; what the pod gets can be read in one way only.
    expect((await ask("/v1/....//../../sleep")).url).toBe("/v1/sleep");
  });
});

describe("methods", () => {
  it("CONNECT and upgrades are refused at once", async () => {
    const connect = await gateway.send({ method: "CONNECT", path: "example.test:443", timeoutMs: 5_000 });
    expect([403, 404, 405]).toContain(connect.status);
    errorOf(connect);
    for (const name of ["websocket", "foo"]) {
      const answer = await gateway.send({ path: "/v1/realtime", headers: [["Upgrade", name], ["Connection", "Upgrade"]], timeoutMs: 5_000 });
      expect(answer.status).toBe(403);
      errorOf(answer);
    }
  });

  it("an offer of HTTP/2 over clear text is not taken up, and the request is served", async () => {
    const answer = await gateway.send({ path: "/v1/models", headers: [["Upgrade", "h2c"], ["HTTP2-Settings", "AAMAAABkAAQAAP__"], ["Connection", "Upgrade, HTTP2-Settings"]] });
    expect(answer.status).toBe(200);
  });
});
