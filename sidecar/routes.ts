import type { ApiShape } from "./body/types.js";

/** What is done with a request. */
export type Route =
  | { readonly kind: "health" }
  | { readonly kind: "ready" }
  /** Encode, prefill and decode are carried out as the routing headers say. */
  | { readonly kind: "orchestrated"; readonly target: string; readonly shape: Exclude<ApiShape, "other"> }
  /** Handed to the engine; its body, if any, is read and cleaned as every other. */
  | { readonly kind: "passThrough"; readonly target: string; readonly multipart: boolean }
  | { readonly kind: "notFound" };

const ORCHESTRATED: Readonly<Record<string, Exclude<ApiShape, "other">>> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "completions",
  "/v1/messages": "messages",
  "/v1/responses": "responses",
  "/inference/v1/generate": "generate",
};

/** Served beside everything under `/v1/`; the engine's metrics are read through the sidecar by whoever scrapes. */
const PASSED = new Set([
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
  "/metrics",
]);

/** Under `/v1/`, and never a client's (real-engine §4). */
const REFUSED = new Set(["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]);

/** The routes of vLLM that take forms. */
const MULTIPART = new Set(["/v1/audio/transcriptions", "/v1/audio/translations"]);

/**
 * Decides by the path as an engine behind any decoder would read it: percent-encodings resolved, `//`, `.` and `..` removed, no trailing slash. What is
 * judged is what is sent, so the target is the cleaned path with the client's query. Paths that can be read in more than one way (encoded twice, with a
 * backslash, a NUL or another control character, not UTF-8) are not found.
 *
 * @param method as received
 * @param url the request target: a path, or an absolute URL whose authority is ignored
 * @param allowPaths further paths; one that ends in `/*` allows what is below it
 */
export function routeOf(method: string, url: string, allowPaths: readonly string[] = []): Route {
  const relative = url.startsWith("/") ? url : url.replace(/^[A-Za-z][A-Za-z0-9+.-]*:\/\/[^/?#]*/, "");
  const queryStart = relative.search(/[?#]/);
  const query = queryStart < 0 || relative[queryStart] === "#" ? "" : (relative.slice(queryStart).split("#")[0] ?? "");
  const path = canonicalPath(queryStart < 0 ? relative : relative.slice(0, queryStart));
  if (path === null) return { kind: "notFound" };
  const target = encodePath(path) + query;
  if (method === "GET" || method === "HEAD") {
    if (path === "/health") return { kind: "health" };
    if (path === "/ready") return { kind: "ready" };
  }
  const shape = method === "POST" ? ORCHESTRATED[path] : undefined;
  if (shape !== undefined) return { kind: "orchestrated", target, shape };
  if (method === "CONNECT" || method === "TRACE" || !isServed(path, allowPaths)) return { kind: "notFound" };
  return { kind: "passThrough", target, multipart: method === "POST" && MULTIPART.has(path) };
}

function isServed(path: string, allowPaths: readonly string[]): boolean {
  // Engines match by case; a proxy before them may not.
  const lower = path.toLowerCase();
  if (REFUSED.has(lower)) return false;
  if (path.startsWith("/v1/") || PASSED.has(path)) return true;
  return allowPaths.some((allowed) => (allowed.endsWith("/*") ? path.startsWith(allowed.slice(0, -1)) : path === allowed));
}

/** The path that an engine would route by; null when it depends on the reader. */
function canonicalPath(raw: string): string | null {
  let decoded: string;
  try {
    decoded = decodeURIComponent(raw);
  } catch {
    return null;
  }
  // Another round would change it again; a path parameter is the segment's end to some readers.
  if (/%[0-9A-Fa-f]{2}/.test(decoded) || /[\\;\u0000-\u001f\u007f]/.test(decoded)) return null;
  // Request targets are bytes; beyond ASCII only their encoded form is well defined.
  if (/[^\u0021-\u007e]/.test(raw) || !decoded.startsWith("/")) return null;
  const segments: string[] = [];
  for (const segment of decoded.split("/")) {
    if (segment === "" || segment === ".") continue;
    if (segment === "..") segments.pop();
    else segments.push(segment);
  }
  return `/${segments.join("/")}`;
}

function encodePath(path: string): string {
  return path.split("/").map(encodeSegment).join("/");
}

/** Encodes what may not stand in a segment and leaves what may (RFC 3986 `pchar`), so that ordinary paths go out as they came. */
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replace(/%(?:3A|40|24|26|2B|2C|3D)/g, decodeURIComponent);
}
