// The fleet as the scheduler sees it: a struct of arrays, so that a pass over a thousand endpoints touches a few contiguous lines of memory and allocates
// nothing. The static half comes from one configuration push; the dynamic half is filled from shared data once per request, before scheduling.

/** Bits of {@link EndpointTable.known}: which of an endpoint's scraped values exist and are fresh. A missing bit makes scorers neutral (scheduler §12.3, L10). */
export const KNOWN_WAITING: u8 = 1;
export const KNOWN_RUNNING: u8 = 2;
export const KNOWN_KV_USAGE: u8 = 4;

export class EndpointTable {
  // Static: from the configuration.
  /** Endpoint's name; unique together with its namespace. */
  name: StaticArray<string>;
  namespace: StaticArray<string>;
  /** Host without brackets: an IPv4 or IPv6 address. */
  address: StaticArray<string>;
  port: StaticArray<i32>;
  /** `host:port`, IPv6 in brackets (scheduler HD-05): what the routing headers carry. */
  hostPort: StaticArray<string>;
  labels: StaticArray<Map<string, string>>;

  // Dynamic: of this moment.
  /** The process-wide id; 0 before the endpoint was given one. */
  id: StaticArray<u32>;
  /** 1: may be picked. 0: left out of every profile (unreachable or draining), unless no candidate would be left. */
  usable: StaticArray<u8>;
  /** KNOWN_* bits. */
  known: StaticArray<u8>;
  waiting: StaticArray<f64>;
  running: StaticArray<f64>;
  /** 0..1 */
  kvUsage: StaticArray<f64>;
  /** Tokens that the engine's KV cache holds, as it reports; 0: not told. */
  cacheTokens: StaticArray<f64>;
  inflightRequests: StaticArray<i32>;
  /** Requests in flight that the scraped values do not know of yet: a burst must be seen before the next scrape. */
  sinceScrape: StaticArray<i32>;
  /** Requests that were in flight when the endpoint was scraped; the largest number where that is not known. */
  scrapedInflight: StaticArray<i32>;
  inflightTokens: StaticArray<i32>;
  /** Tokens of the prompt that the endpoint holds, contiguous from the prompt's start; the last partial block counts with its own tokens (scheduler L6). */
  matchedTokens: StaticArray<i32>;
  /** The same in blocks, the partial one as one. */
  matchedBlocks: StaticArray<i32>;
  /** Bit i: the endpoint has encoded the request's i-th distinct media item. */
  heldItems: StaticArray<u64>;

  constructor(
    /** Number of endpoints; every array has this length. */
    public readonly count: i32,
  ) {
    this.name = new StaticArray<string>(count);
    this.namespace = new StaticArray<string>(count);
    this.address = new StaticArray<string>(count);
    this.port = new StaticArray<i32>(count);
    this.hostPort = new StaticArray<string>(count);
    this.labels = new StaticArray<Map<string, string>>(count);
    this.id = new StaticArray<u32>(count);
    this.usable = new StaticArray<u8>(count);
    this.known = new StaticArray<u8>(count);
    this.waiting = new StaticArray<f64>(count);
    this.running = new StaticArray<f64>(count);
    this.kvUsage = new StaticArray<f64>(count);
    this.cacheTokens = new StaticArray<f64>(count);
    this.inflightRequests = new StaticArray<i32>(count);
    this.sinceScrape = new StaticArray<i32>(count);
    this.scrapedInflight = new StaticArray<i32>(count);
    this.inflightTokens = new StaticArray<i32>(count);
    this.matchedTokens = new StaticArray<i32>(count);
    this.matchedBlocks = new StaticArray<i32>(count);
    this.heldItems = new StaticArray<u64>(count);
    // Behind the last field: the compiler wants all fields set before an element is written.
    for (let i = 0; i < count; i++) {
      this.name[i] = "";
      this.namespace[i] = "default";
      this.address[i] = "";
      this.hostPort[i] = "";
      this.labels[i] = new Map<string, string>();
      this.usable[i] = 1;
      this.scrapedInflight[i] = i32.MAX_VALUE;
    }
  }

  /** A number per endpoint, equal for equal values of the label `key`; 0 where it is missing or empty. */
  groups(key: string): StaticArray<i32> {
    const out = new StaticArray<i32>(this.count);
    const numbers = new Map<string, i32>();
    for (let i = 0; i < this.count; i++) {
      if (!this.labels[i].has(key)) continue;
      const value = this.labels[i].get(key);
      if (value.length == 0) continue;
      if (!numbers.has(value)) numbers.set(value, numbers.size + 1);
      out[i] = numbers.get(value);
    }
    return out;
  }
}
