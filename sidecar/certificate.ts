import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { OptionsError } from "./options.js";
import { type FolderWatch, watchFolder } from "./watch-folder.js";

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
  const pair = { cert: read("tls.crt"), key: read("tls.key") };
  try {
    createSecureContext(pair);
  } catch (error) {
    throw new OptionsError(`--cert-path: tls.crt and tls.key of ${directory} are no pair (${error instanceof Error ? error.message : String(error)})`);
  }
  return pair;
}

/**
 * Follows the key pair of a directory: files that are written anew, and a mounted Secret that is swapped by its `..data` link (sidecar §7). What cannot be read or is
 * no pair is told, and the old pair stays.
 *
 * @param current the pair that is in use
 */
export function watchPair(certPath: string, current: KeyPair, onPair: (pair: KeyPair) => void, onError: (error: unknown) => void, timing?: Parameters<typeof watchFolder>[2]): FolderWatch {
  let known = current;
  const look = (): void => {
    try {
      const pair = readPair(certPath);
      if (pair.cert === known.cert && pair.key === known.key) return;
      known = pair;
      onPair(pair);
    } catch (error) {
      onError(error);
    }
  };
  return watchFolder(certPath, look, timing);
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
