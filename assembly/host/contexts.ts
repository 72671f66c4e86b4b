// The two kinds of context that Envoy drives, under the names that users of the proxy-wasm SDK know, and the table from context ids to objects. Creating one costs the
// same whatever the number of open streams.

export const enum HeadersStatus {
  Continue = 0,
  StopIteration = 1,
}
export const enum DataStatus {
  Continue = 0,
  StopIterationAndBuffer = 1,
}

/** One plugin configuration on one thread. Lives as long as Envoy serves it. */
export abstract class RootContext {
  id: u32 = 0;
  /** The configuration's `size` bytes are in the plugin configuration buffer. False refuses it: the old one goes on serving. */
  abstract onConfigure(size: u32): bool;
  onTick(): void {}
  onHttpCallResponse(token: u32, headers: u32, bodySize: u32): void {}
  /** A new stream begins on this configuration. */
  abstract createStream(): StreamContext;
  onDelete(): void {}
}

/** One request. */
export abstract class StreamContext {
  id: u32 = 0;
  onRequestHeaders(headers: u32, endOfStream: bool): HeadersStatus {
    return HeadersStatus.Continue;
  }
  onRequestBody(size: u32, endOfStream: bool): DataStatus {
    return DataStatus.Continue;
  }
  onRequestTrailers(): void {}
  onResponseHeaders(headers: u32, endOfStream: bool): void {}
  /** The stream has ended in whatever way; called once. Its headers and properties are gone. */
  onDelete(): void {}
}

/**
 * Stream contexts by id: open addressing without tombstones. A map of the standard library would leave garbage behind with every few streams, and garbage is collected
 * between requests only.
 */
class StreamTable {
  private ids: StaticArray<u32> = new StaticArray<u32>(64);
  private streams: StaticArray<StreamContext | null> = new StaticArray<StreamContext | null>(64);
  private mask: u32 = 63;
  private count: u32 = 0;

  private slot(id: u32): u32 {
    return (id * 0x9e3779b1) & this.mask;
  }

  get(id: u32): StreamContext | null {
    let at = this.slot(id);
    while (unchecked(this.ids[at]) != id) {
      if (!unchecked(this.ids[at])) return null;
      at = (at + 1) & this.mask;
    }
    return unchecked(this.streams[at]);
  }

  set(id: u32, stream: StreamContext): void {
    if (++this.count << 1 > this.mask) this.grow();
    this.place(id, stream);
  }

  private place(id: u32, stream: StreamContext | null): void {
    let at = this.slot(id);
    while (unchecked(this.ids[at])) at = (at + 1) & this.mask;
    unchecked((this.ids[at] = id));
    unchecked((this.streams[at] = stream));
  }

  private grow(): void {
    const ids = this.ids;
    const streams = this.streams;
    this.mask = (this.mask << 1) | 1;
    this.ids = new StaticArray<u32>(this.mask + 1);
    this.streams = new StaticArray<StreamContext | null>(this.mask + 1);
    for (let i = 0; i < ids.length; i++) if (ids[i]) this.place(ids[i], streams[i]);
  }

  remove(id: u32): StreamContext | null {
    let at = this.slot(id);
    while (unchecked(this.ids[at]) != id) {
      if (!unchecked(this.ids[at])) return null;
      at = (at + 1) & this.mask;
    }
    const stream = unchecked(this.streams[at]);
    this.count--;
    // Close the gap: what stands behind it moves up when its own place lies at or in front of it.
    let gap = at;
    while (true) {
      at = (at + 1) & this.mask;
      const id2 = unchecked(this.ids[at]);
      if (!id2) break;
      const home = this.slot(id2);
      if (((at - home) & this.mask) < ((at - gap) & this.mask)) continue;
      unchecked((this.ids[gap] = id2));
      unchecked((this.streams[gap] = this.streams[at]));
      gap = at;
    }
    unchecked((this.ids[gap] = 0));
    unchecked((this.streams[gap] = null));
    return stream;
  }
}

export abstract class ContextFactory {
  abstract createRoot(id: u32): RootContext;
}

let factory: ContextFactory | null = null;
export function useContexts(f: ContextFactory): void {
  factory = f;
}

const roots = new Map<u32, RootContext>();
const streams = new StreamTable();
/** Of the last stream: nearly always the next one's, too. */
let servingId: u32 = 0;
let serving: RootContext | null = null;

export function createContext(id: u32, parent: u32): void {
  if (!parent) {
    const root = factory!.createRoot(id);
    root.id = id;
    roots.set(id, root);
    if (id == servingId) servingId = 0;
    return;
  }
  if (parent != servingId) {
    if (!roots.has(parent)) return;
    serving = roots.get(parent);
    servingId = parent;
  }
  const stream = serving!.createStream();
  stream.id = id;
  streams.set(id, stream);
}

export function rootContext(id: u32): RootContext | null {
  return roots.has(id) ? roots.get(id) : null;
}

export function streamContext(id: u32): StreamContext | null {
  return streams.get(id);
}

export function deleteContext(id: u32): void {
  const stream = streams.remove(id);
  if (stream) stream.onDelete();
  else if (roots.has(id)) {
    const root = roots.get(id);
    roots.delete(id);
    if (id == servingId) {
      servingId = 0;
      serving = null;
    }
    root.onDelete();
  }
}
