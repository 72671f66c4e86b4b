/**
 * What engines of one process share, as pods share a mounted volume: encoder outputs by media hash (`ec-example`) and KV by content
 * (`shared-storage`, real-engine §5). Engines of other processes are asked over their control ports (options `encoders`, `kvStores`).
 */

export interface StoredEmbedding {
  readonly hash: string;
  /** `host:port` of the encoder that wrote it. */
  readonly writer: string;
}

export class EngineDirectory {
  private readonly embeddings = new Map<string, StoredEmbedding>();
  private readonly kv = new Set<string>();

  putEmbedding(hash: string, writer: string): void {
    this.embeddings.set(hash, { hash, writer });
  }

  embedding(hash: string): StoredEmbedding | undefined {
    return this.embeddings.get(hash);
  }

  putKv(contents: Iterable<string>): void {
    for (const content of contents) this.kv.add(content);
  }

  hasKv(content: string): boolean {
    return this.kv.has(content);
  }

  clear(): void {
    this.embeddings.clear();
    this.kv.clear();
  }
}
