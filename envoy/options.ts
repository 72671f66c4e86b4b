import { isObject, type Json } from "./json.js";

/** The part of FilterOptions that Envoy itself carries out. The filter's validator has checked all of it (one validator, DESIGN decision 7). */
export interface GatewayOptions {
  /** Largest request body, opened, in bytes. */
  readonly bodyLimitBytes: number;
  /** Paths served beside the built-in ones: exact, or `/x/*` for all below `/x`. */
  readonly allowPaths: readonly string[];
  /** Decode pods speak TLS. */
  readonly tlsDecode: boolean;
  /** Their certificates must come from {@link Settings.tlsCaFile}. */
  readonly tlsVerify: boolean;
}

export const DEFAULT_BODY_LIMIT_BYTES = 64 * 1024 * 1024;

const FACTORS: Readonly<Record<string, number>> = { "": 1, k: 1e3, M: 1e6, G: 1e9, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3 };

/** A number of bytes or a Kubernetes quantity of them (`64Mi`), as FilterOptions takes them; the fallback for anything else. */
function bytes(value: Json | undefined, fallback: number): number {
  if (typeof value === "number") return value;
  const match = typeof value === "string" ? /^\+?(\d+(?:\.\d*)?|\.\d+)(|[kMG]|[KMG]i|[eE][+-]?\d+)$/.exec(value) : null;
  if (match?.[1] === undefined || match[2] === undefined) return fallback;
  const factor = FACTORS[match[2]];
  return Math.ceil(factor === undefined ? Number(match[1] + match[2]) : Number(match[1]) * factor);
}

/** @param options a FilterOptions document that the validator accepted, or null for none */
export function readGatewayOptions(options: Json): GatewayOptions {
  const fields = isObject(options) ? options : {};
  const tls = isObject(fields.tls) ? fields.tls : {};
  const paths = Array.isArray(fields.allowPaths) ? (fields.allowPaths as readonly Json[]) : [];
  return {
    bodyLimitBytes: bytes(fields.bodyLimitBytes, DEFAULT_BODY_LIMIT_BYTES),
    allowPaths: paths.filter((path) => typeof path === "string"),
    tlsDecode: tls.decode === true,
    tlsVerify: tls.verify === true,
  };
}
