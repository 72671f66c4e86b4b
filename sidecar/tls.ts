import { existsSync, readFileSync } from "node:fs";
import { createSecureContext, rootCertificates, type SecureContext } from "node:tls";
import { OptionsError } from "./options.js";

/** Nothing older on either side (sidecar §7). */
export const TLS_MIN_VERSION = "TLSv1.2";

/** TLS 1.3 as it is, and of TLS 1.2 the six suites with forward secrecy and authenticated encryption (sidecar §7). */
export const TLS_CIPHERS = [
  "TLS_AES_128_GCM_SHA256",
  "TLS_AES_256_GCM_SHA384",
  "TLS_CHACHA20_POLY1305_SHA256",
  "ECDHE-ECDSA-AES128-GCM-SHA256",
  "ECDHE-RSA-AES128-GCM-SHA256",
  "ECDHE-ECDSA-AES256-GCM-SHA384",
  "ECDHE-RSA-AES256-GCM-SHA384",
  "ECDHE-ECDSA-CHACHA20-POLY1305",
  "ECDHE-RSA-CHACHA20-POLY1305",
].join(":");

/** Where systems keep the roots that they trust; the first that exists. */
const SYSTEM_ROOTS = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"];

/**
 * The roots that upstream certificates are verified with, as PEM: `SSL_CERT_FILE`, or the system's (sidecar §7), or Node's own where the system has none; and
 * `NODE_EXTRA_CA_CERTS`, which Node leaves out as soon as roots are named.
 *
 * @throws OptionsError naming the variable whose file cannot be read
 */
export function trustedRoots(env: Readonly<Record<string, string | undefined>>): string[] {
  const named = (variable: string): string | null => {
    const path = env[variable];
    if (path === undefined || path === "") return null;
    try {
      return readFileSync(path, "utf8");
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
      throw new OptionsError(`${variable}: cannot read ${path} (${code})`);
    }
  };
  const system = SYSTEM_ROOTS.find((path) => existsSync(path));
  const own = named("SSL_CERT_FILE") ?? (system === undefined ? null : readFileSync(system, "utf8"));
  const extra = named("NODE_EXTRA_CA_CERTS");
  return [...(own === null ? rootCertificates : [own]), ...(extra === null ? [] : [extra])];
}

let verifying: SecureContext | null = null;
let trusting: SecureContext | null = null;

/**
 * What connections to engines are made with: one for all that are verified and one for all that are not, since a context with all roots takes milliseconds and a
 * megabyte.
 *
 * @throws OptionsError see {@link trustedRoots}
 */
export function upstreamContext(verify: boolean): SecureContext {
  const common = { minVersion: TLS_MIN_VERSION, ciphers: TLS_CIPHERS } as const;
  if (!verify) return (trusting ??= createSecureContext(common));
  return (verifying ??= createSecureContext({ ...common, ca: trustedRoots(process.env) }));
}
