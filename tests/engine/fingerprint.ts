/** Hashes that say whether two engines saw the same thing. 64 bits, not cryptographic. */

import { createHash } from "node:crypto";

/** A running hash over token ids: equal exactly when all ids so far were equal and in the same order. */
export class TokenChain {
  private a: number;
  private b: number;

  constructor(seed: string) {
    const digest = createHash("sha256").update(seed).digest();
    this.a = digest.readInt32LE(0);
    this.b = digest.readInt32LE(4);
  }

  push(id: number): void {
    this.a = Math.imul(this.a ^ id, 0x85ebca6b);
    this.a ^= this.a >>> 13;
    this.b = Math.imul(this.b ^ this.a ^ (id << 7), 0xc2b2ae35);
    this.b ^= this.b >>> 16;
    this.a = (this.a + this.b) | 0;
  }

  clone(): TokenChain {
    const copy = new TokenChain("");
    copy.a = this.a;
    copy.b = this.b;
    return copy;
  }

  value(): string {
    return (this.a >>> 0).toString(16).padStart(8, "0") + (this.b >>> 0).toString(16).padStart(8, "0");
  }
}

/** 64 bits of SHA-256 as 16 hexadecimal digits. */
export function fingerprint(...parts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(String(part.length)).update(":").update(part);
  return hash.digest("hex").slice(0, 16);
}

/** All of SHA-256, as vLLM names a media item. */
export function mediaHash(...parts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(String(part.length)).update(":").update(part);
  return hash.digest("hex");
}

export function hash32(hexText: string): number {
  return Number.parseInt(hexText.slice(0, 8), 16) | 0;
}
