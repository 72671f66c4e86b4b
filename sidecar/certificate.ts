import { readFileSync } from "node:fs";
import { join } from "node:path";
import { OptionsError } from "./options.js";

export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

const VALID_YEARS = 10;

/** The listener's key pair: `tls.crt` and `tls.key` of a directory, or a new self-signed one (sidecar §7). */
export async function keyPair(certPath: string): Promise<KeyPair> {
  return certPath === "" ? selfSigned() : readPair(certPath);
}

function readPair(directory: string): KeyPair {
  const read = (name: string): string => {
    try {
      return readFileSync(join(directory, name), "utf8");
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
      throw new OptionsError(`--cert-path: cannot read ${join(directory, name)} (${code})`);
    }
  };
  return { cert: read("tls.crt"), key: read("tls.key") };
}

async function selfSigned(): Promise<KeyPair> {
  // Loaded only where it is needed: its libraries hold 15 MB.
  const { generate } = await import("selfsigned");
  const now = new Date();
  const notAfterDate = new Date(now);
  notAfterDate.setFullYear(now.getFullYear() + VALID_YEARS);
  const pair = await generate(
    [
      { name: "organizationName", value: "Crosspoint sidecar" },
      { name: "commonName", value: "localhost" },
    ],
    {
      keyType: "ec",
      curve: "P-256",
      algorithm: "sha256",
      // A minute of grace for clocks that are behind.
      notBeforeDate: new Date(now.getTime() - 60_000),
      notAfterDate,
      extensions: [
        { name: "basicConstraints", cA: false },
        { name: "keyUsage", digitalSignature: true, critical: true },
        { name: "extKeyUsage", serverAuth: true },
        { name: "subjectAltName", altNames: [{ type: 2, value: "localhost" }, { type: 7, ip: "127.0.0.1" }, { type: 7, ip: "::1" }] },
      ],
    },
  );
  return { cert: pair.cert, key: pair.private };
}
