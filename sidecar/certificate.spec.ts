import { X509Certificate } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "node:tls";
import { describe, expect, it } from "vitest";
import { keyPair } from "./certificate.js";
import { listen } from "./listener.js";

describe("keyPair", () => {
  it("makes a self-signed pair for ten years that names this machine", async () => {
    const certificate = new X509Certificate((await keyPair("")).cert);
    expect([certificate.checkHost("localhost"), certificate.checkIP("127.0.0.1"), certificate.publicKey.asymmetricKeyType, certificate.ca]).toEqual(["localhost", "127.0.0.1", "ec", false]);
    const years = (Date.parse(certificate.validTo) - Date.now()) / (365.25 * 86_400_000);
    expect([years > 9.9, years < 10.1, Date.parse(certificate.validFrom) < Date.now()]).toEqual([true, true, true]);
    expect((await keyPair("")).key).not.toBe((await keyPair("")).key);
  });

  it("reads tls.crt and tls.key of a directory, or says what is missing", async () => {
    const folder = mkdtempSync(join(tmpdir(), "sidecar-certs-"));
    try {
      const made = await keyPair("");
      writeFileSync(join(folder, "tls.crt"), made.cert);
      await expect(keyPair(folder)).rejects.toThrow(/--cert-path: cannot read .*tls\.key \(ENOENT\)/);
      writeFileSync(join(folder, "tls.key"), made.key);
      expect(await keyPair(folder)).toEqual(made);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("listen", () => {
  it("offers HTTP/2 and HTTP/1.1, TLS 1.2 at least", async () => {
    const listener = await listen("127.0.0.1", 0, await keyPair(""), (_, response) => void response.end());
    const negotiate = (protocols: string[], maxVersion: "TLSv1.1" | "TLSv1.3"): Promise<string | false | null> =>
      new Promise((resolve) => {
        const socket = connect({ port: listener.port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols: protocols, maxVersion, minVersion: "TLSv1" }, () => {
          resolve(socket.alpnProtocol);
          socket.destroy();
        });
        socket.on("error", () => {
          resolve("refused");
        });
      });
    expect([await negotiate(["h2", "http/1.1"], "TLSv1.3"), await negotiate(["http/1.1"], "TLSv1.3"), await negotiate(["http/1.1"], "TLSv1.1")]).toEqual(["h2", "http/1.1", "refused"]);
    await listener.close();
  });

  it("says that a port is taken", async () => {
    const listener = await listen("127.0.0.1", 0, null, (_, response) => void response.end());
    await expect(listen("127.0.0.1", listener.port, null, () => undefined)).rejects.toThrow("EADDRINUSE");
    await listener.close();
  });
});
