import { describe, expect, it } from "vitest";
import { routeOf } from "./routes.js";

const CONTROL_PATHS = [
  "/v1/load_lora_adapter",
  "/v1/unload_lora_adapter",
  "/inference/v1/abort_requests",
  "/kv_event_sources",
  "/invocations",
  "/sleep",
  "/wake_up",
  "/pause",
  "/resume",
  "/collective_rpc",
  "/reset_prefix_cache",
  "/reset_mm_cache",
  "/update_weights",
  "/server_info",
  "/load",
  "/start_profile",
  "/stop_profile",
  "/docs",
  "/openapi.json",
  "/",
];

/** Spellings under which a reader other than ours might still see the path. */
function spellings(path: string): string[] {
  const encoded = (text: string): string => [...text].map((letter) => `%${letter.charCodeAt(0).toString(16).padStart(2, "0")}`).join("");
  const last = path.split("/").at(-1) ?? "";
  const parent = path.slice(0, path.length - last.length);
  return [
    path,
    `${path}?x=1`,
    `${path}?`,
    `${path}#f`,
    `${path}/`,
    `${path}//`,
    `/${path}`,
    `//${path}`,
    `${path}/.`,
    `${path}/x/..`,
    `${path}/x/%2e%2e`,
    `${path}%2f`,
    `${parent}${encoded(last)}`,
    `${parent}${encoded(encoded(last))}`,
    `${parent}./${last}`,
    `${parent}%2e/${last}`,
    `/v1/../${path}`,
    `/v1/%2e%2e${path}`,
    `/v1/..%2f${path}`,
    `/v1/%2e%2e%2f${path.slice(1)}`,
    `/v1/..\\${path.slice(1)}`,
    `/v1/%5c..%5c${path.slice(1)}`,
    `/v1/%252e%252e${path}`,
    `/v1/models/../..${path}`,
    `${path};x=1`,
    `${path}%00`,
    `${path}%20`,
    `${path}%0d%0a`,
    `http://other.test${path}`,
    `http://u:p@other.test:80//${path}?q`,
  ];
}

describe("routeOf", () => {
  it.each(CONTROL_PATHS)("keeps clients from %s under any spelling and method", (path) => {
    for (const spelling of spellings(path)) {
      for (const method of ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]) {
        const route = routeOf(method, spelling);
        // `/v1/..%2f` and the like may resolve to a path of ours, never to one that an engine would read as the control path.
        if (route.kind === "passThrough" || route.kind === "orchestrated") expect(decodeURIComponent(route.target.split("?")[0] ?? ""), `${method} ${spelling}`).not.toBe(path);
        if (spelling === path || spelling === `${path}/`) expect(route.kind).toBe("notFound");
      }
    }
  });

  it("does not let another case through to readers that ignore it", () => {
    expect(routeOf("POST", "/v1/Load_LoRA_Adapter").kind).toBe("notFound");
    expect(routeOf("POST", "/SLEEP").kind).toBe("notFound");
  });

  it.each([
    ["/v1/chat/completions", "chat"],
    ["/v1/completions", "completions"],
    ["/v1/messages", "messages"],
    ["/v1/responses", "responses"],
    ["/inference/v1/generate", "generate"],
  ])("orchestrates POST %s as %s, whatever its query and spelling", (path, shape) => {
    expect(routeOf("POST", `${path}?beta=true&x=%2F`)).toEqual({ kind: "orchestrated", target: `${path}?beta=true&x=%2F`, shape });
    for (const spelling of [`/${path}`, `${path}/`, path.replace("/v1", "/x/../v1"), path.replaceAll("e", "%65"), `https://a.test${path}`, `${path}#x`]) {
      expect(routeOf("POST", spelling)).toEqual({ kind: "orchestrated", target: path, shape });
    }
    expect(routeOf("GET", path)).toEqual({ kind: "passThrough", target: path, multipart: false });
  });

  it.each(["/v1/models", "/v1/embeddings", "/v1/score", "/generate", "/v2/rerank", "/rerank", "/score", "/pooling", "/classify", "/tokenize", "/detokenize", "/healthz", "/ping", "/version", "/metrics"])("passes %s through", (path) => {
    for (const method of ["GET", "POST", "OPTIONS", "DELETE"]) expect(routeOf(method, `${path}?a=1`)).toEqual({ kind: "passThrough", target: `${path}?a=1`, multipart: false });
  });

  it("C-RT-03: health and readiness are its own", () => {
    expect([routeOf("GET", "/health").kind, routeOf("HEAD", "/health?x").kind, routeOf("GET", "/ready").kind, routeOf("POST", "/health").kind, routeOf("POST", "/ready").kind]).toEqual([
      "health",
      "health",
      "ready",
      "passThrough",
      "notFound",
    ]);
  });

  it("takes forms on the two audio routes only", () => {
    for (const path of ["/v1/audio/transcriptions", "/v1/audio/translations"]) {
      expect(routeOf("POST", path)).toEqual({ kind: "passThrough", target: path, multipart: true });
      expect(routeOf("PUT", path)).toMatchObject({ multipart: false });
    }
    expect(routeOf("POST", "/v1/embeddings")).toMatchObject({ multipart: false });
  });

  it("serves further paths when told to", () => {
    expect(routeOf("GET", "/load", ["/load"])).toMatchObject({ kind: "passThrough", target: "/load" });
    expect(routeOf("GET", "/x/y", ["/x/*"])).toMatchObject({ kind: "passThrough" });
    expect(routeOf("GET", "/x", ["/x/*"]).kind).toBe("notFound");
    expect(routeOf("GET", "/xy", ["/x/*"]).kind).toBe("notFound");
    expect(routeOf("POST", "/v1/load_lora_adapter", ["/v1/*"]).kind).toBe("notFound");
  });

  it("keeps what may stand in a path as it came", () => {
    expect(routeOf("GET", "/v1/models/a:b@c+d,e=f$g&h~i!j'k(l)m*n")).toMatchObject({ target: "/v1/models/a:b@c+d,e=f$g&h~i!j'k(l)m*n" });
    expect(routeOf("GET", "/v1/models/a%20b%C3%A9%3F")).toMatchObject({ target: "/v1/models/a%20b%C3%A9%3F" });
    expect(routeOf("GET", "/v1/models/a%23b")).toMatchObject({ target: "/v1/models/a%23b" });
  });

  it("refuses targets that are no paths", () => {
    for (const url of ["", "*", "v1/models", "/v1/%zz", "/v1/%ff", "/v1/\u00e9", "http://", "?x"]) expect(routeOf("GET", url).kind).toBe("notFound");
    expect(routeOf("CONNECT", "/v1/models").kind).toBe("notFound");
    expect(routeOf("TRACE", "/v1/models").kind).toBe("notFound");
  });
});
