// The loopback listener that shows the filter's state: everything from shared data, so that it is the same whoever answers. What a metric could not hold, because no metric
// can be removed again (per endpoint), is here only.
import { DECISION_TYPES } from "../disagg/decision";
import { DECODE_REASONS, ENCODE_REASONS, PREFILL_REASONS } from "../disagg/reasons";
import { DRAINING, KNOWN_KV_USAGE, KNOWN_RUNNING, KNOWN_WAITING, LoadBook, SCRAPED, UNREACHABLE } from "../endpoints";
import { Bytes, Counter, getHeader, HeaderMap, HeaderPairs, HeadersStatus, nowMs, RootContext, sendLocalResponse, StreamContext, valueAt, valueSize, Writer } from "../host";
import { version } from "../version";
import { FilterRoot, newest } from "./root";

const CONTENT_TYPE = new Bytes("content-type");
const JSON_TYPE = new Bytes("application/json");
const TEXT_TYPE = new Bytes("text/plain; version=0.0.4");
const DETAILS = new Bytes("crosspoint_state");
const PATH = new Bytes(":path");
const METRICS = new Bytes("/metrics");

/** The root of the state listener's filter: it has no configuration of its own. */
export class StateRoot extends RootContext {
  onConfigure(size: u32): bool {
    return true;
  }
  createStream(): StreamContext {
    return new StateStream();
  }
}

class StateStream extends StreamContext {
  onRequestHeaders(headers: u32, endOfStream: bool): HeadersStatus {
    const out = new Writer(16384);
    const root = newest;
    const asMetrics = getHeader(HeaderMap.Request, PATH) && valueSize >= METRICS.size && memory.compare(valueAt, METRICS.at, METRICS.size) == 0;
    if (asMetrics) {
      if (root) writeMetrics(out, root);
    } else if (root) writeState(out, root);
    else {
      out.text('{"version":');
      out.json(version());
      out.text(',"configured":false}');
    }
    const pairs = new HeaderPairs();
    const type = asMetrics ? TEXT_TYPE : JSON_TYPE;
    pairs.add(CONTENT_TYPE.at, CONTENT_TYPE.size, type.at, type.size);
    sendLocalResponse(200, DETAILS, pairs, out.at, out.size);
    out.dispose();
    pairs.dispose();
    return HeadersStatus.StopIteration;
  }
}

/** Fills the table's dynamic columns from shared data; the load record itself is the caller's to dispose of. */
function readAll(root: FilterRoot, now: u64): LoadBook {
  const v = root.vm!;
  const table = root.config!.endpoints;
  root.readLoad(now, 0);
  const book = new LoadBook(root.ids);
  book.adopt(v.store, root.fleet);
  return book;
}

/**
 * What is known per endpoint, as Prometheus text. Made anew at every read, so an endpoint that is gone is gone here at once; Envoy's own metrics could not forget it.
 */
function writeMetrics(out: Writer, root: FilterRoot): void {
  const table = root.config!.endpoints;
  const now = nowMs();
  const book = readAll(root, now);
  for (let family = 0; family < FAMILIES.length; family++) {
    out.text("# TYPE crosspoint_endpoint_");
    out.text(FAMILIES[family]);
    out.text(" gauge\n");
    for (let i = 0; i < table.count; i++) {
      const e = book.entry(i);
      let value: f64 = NaN;
      switch (family) {
        case 0:
          if (table.known[i] & KNOWN_WAITING) value = table.waiting[i];
          break;
        case 1:
          if (table.known[i] & KNOWN_RUNNING) value = table.running[i];
          break;
        case 2:
          if (table.known[i] & KNOWN_KV_USAGE) value = table.kvUsage[i];
          break;
        case 3:
          value = table.inflightRequests[i];
          break;
        case 4:
          value = table.inflightTokens[i];
          break;
        case 5:
          value = <f64>root.index!.blocksOf(table.id[i]);
          break;
        case 6:
          value = <f64>root.capacity(i);
          break;
        case 7:
          value = table.usable[i];
          break;
        case 8:
          if (e.scrapedMs) value = <f64>(now - e.scrapedMs) / 1000;
          break;
      }
      if (value != value) continue;
      out.text("crosspoint_endpoint_");
      out.text(FAMILIES[family]);
      out.text("{namespace=");
      out.json(table.namespace[i]);
      out.text(",endpoint=");
      out.json(table.name[i]);
      out.text(",address=");
      out.json(table.hostPort[i]);
      out.text("} ");
      out.decimal(value);
      out.byte(0x0a);
    }
  }
  book.dispose();
}

const FAMILIES: StaticArray<string> = [
  "waiting_requests",
  "running_requests",
  "kv_cache_usage_ratio",
  "inflight_requests",
  "inflight_tokens",
  "prefix_blocks",
  "prefix_capacity_blocks",
  "usable",
  "scrape_age_seconds",
];

function writeState(out: Writer, root: FilterRoot): void {
  const v = root.vm!;
  const config = root.config!;
  const table = config.endpoints;
  const now = nowMs();
  const book = readAll(root, now);
  const scheduler = config.scheduler;
  out.text('{"version":');
  out.json(version());
  out.text(',"configured":true,"revision":');
  out.number(config.revision);
  out.text(',"blockTokens":');
  out.number(root.blockTokens);
  out.text(',"maxBlocks":');
  out.number(root.maxBlocks);
  out.text(',"endpoints":[');
  for (let i = 0; i < table.count; i++) {
    if (i) out.byte(0x2c);
    const e = book.entry(i);
    out.text('{"id":');
    out.number(table.id[i]);
    out.text(',"name":');
    out.json(table.name[i]);
    out.text(',"namespace":');
    out.json(table.namespace[i]);
    out.text(',"address":');
    out.json(table.hostPort[i]);
    out.text(',"roles":[');
    let roles = 0;
    roles = role(out, roles, scheduler.decodeCapable[i], "decode");
    roles = role(out, roles, scheduler.prefillCapable[i], "prefill");
    role(out, roles, scheduler.encodeCapable[i], "encode");
    out.text('],"load":{"waiting":');
    known(out, (table.known[i] & KNOWN_WAITING) != 0, table.waiting[i]);
    out.text(',"running":');
    known(out, (table.known[i] & KNOWN_RUNNING) != 0, table.running[i]);
    out.text(',"kvUsage":');
    known(out, (table.known[i] & KNOWN_KV_USAGE) != 0, table.kvUsage[i]);
    out.text('},"ageMs":');
    if (e.scrapedMs) out.number(<i64>(now - e.scrapedMs));
    else out.text("null");
    out.text(',"health":"');
    out.text(e.flags & DRAINING ? "draining" : e.flags & UNREACHABLE ? "unreachable" : e.flags & SCRAPED ? "ok" : "unknown");
    out.text('","failures":');
    out.number(e.failures);
    out.text(',"inFlight":{"requests":');
    out.number(table.inflightRequests[i]);
    out.text(',"tokens":');
    out.number(table.inflightTokens[i]);
    out.text('},"prefixBlocks":');
    out.number(root.index!.blocksOf(table.id[i]));
    out.text(',"prefixCapacity":');
    out.number(root.capacity(i));
    out.byte(0x7d);
  }
  book.dispose();
  const stats = v.stats;
  out.text('],"decisions":{');
  for (let i = 0; i < DECISION_TYPES.length; i++) {
    if (i) out.byte(0x2c);
    out.json(DECISION_TYPES[i]);
    out.byte(0x3a);
    out.number(stats.decisions[i].value);
  }
  out.text('},"requests":');
  out.number(stats.requests.value);
  out.text(',"reasons":{"decode":');
  reasons(out, DECODE_REASONS, stats.decode);
  out.text(',"prefill":');
  reasons(out, PREFILL_REASONS, stats.prefill);
  out.text(',"encode":');
  reasons(out, ENCODE_REASONS, stats.encode);
  out.text("}}");
}

function role(out: Writer, before: i32, has: u8, name: string): i32 {
  if (!has) return before;
  if (before) out.byte(0x2c);
  out.json(name);
  return before + 1;
}

function known(out: Writer, is: bool, value: f64): void {
  if (is) out.decimal(value);
  else out.text("null");
}

function reasons(out: Writer, words: StaticArray<string>, counters: StaticArray<Counter | null>): void {
  out.byte(0x7b);
  let n = 0;
  for (let i = 0; i < words.length; i++) {
    const counter = counters[i];
    if (!counter) continue;
    if (n++) out.byte(0x2c);
    out.json(words[i]);
    out.byte(0x3a);
    out.number(counter.value);
  }
  out.byte(0x7d);
}
