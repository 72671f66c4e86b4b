// The lease holder's scraping: one call per endpoint and interval, whatever the number of workers; `/metrics`, then `/health`. It works on this configuration's endpoints
// and writes one record for all VMs.
import { LoadedConfig } from "../config";
import { AdapterBook, consumeReports, DRAINING, EngineNames, Exposition, FAILURES_OUT, Fleet, joinHostPort, KNOWN_KV_USAGE, KNOWN_RUNNING, KNOWN_WAITING, LoadBook, LoadEntry, SCRAPED, UNREACHABLE } from "../endpoints";
import { arenaMark, arenaRelease, BufferKind, Bytes, getHeader, HeaderMap, HeaderPairs, httpCall, pieceAt, pieceSize, readPiece, valueNumber } from "../host";
import { EngineMetrics } from "../scheduling/producers/core-metrics-extractor";
import { Vm } from "./vm";

/** An answer is read so far and no further. */
const MAX_ANSWER: u32 = 4 << 20;
const PIECE: u32 = 64 << 10;

const PLAIN_CLUSTER = new Bytes("crosspoint_scrape");
const TLS_CLUSTER = new Bytes("crosspoint_scrape_tls");
const METHOD = new Bytes(":method");
const GET = new Bytes("GET");
const PATH = new Bytes(":path");
const AUTHORITY = new Bytes(":authority");
const STATUS = new Bytes(":status");
const TARGET = new Bytes("x-envoy-original-dst-host");
const HEALTH = new Bytes("/health");

/** vLLM's and SGLang's counters that a restart takes back, where the process's start time is not told. */
const VLLM_COUNTER = "vllm:prompt_tokens_total";

class Call {
  token: u32 = 0;
  endpoint: i32 = 0;
  health: bool = false;
}

/** Told that an endpoint needs a new id, because it was restarted in place. */
export abstract class Renewal {
  /** Returns the new id, 0 when there is none. */
  abstract renew(endpoint: i32): u32;
}

export class Scraper {
  private readonly pairs: HeaderPairs = new HeaderPairs();
  private readonly calls: Call[] = [];
  private readonly spare: Call[] = [];
  private readonly book: LoadBook;
  /** Null: no scorer asks for adapters. */
  private adapters: AdapterBook | null = null;
  /** Next scrape of each endpoint; 0: at once. */
  private readonly dueMs: StaticArray<u64>;
  private readonly open: StaticArray<u8>;
  private readonly hosts: Bytes[] = [];
  private readonly targets: Bytes[] = [];
  private readonly names: EngineNames[] = [];
  private readonly path: Bytes;
  private readonly answer: Exposition;
  /** Where the search for due endpoints goes on, so that none is starved. */
  private next: i32 = 0;
  private nowMs: u64 = 0;

  constructor(
    private readonly vm: Vm,
    private readonly config: LoadedConfig,
    private readonly renewal: Renewal,
    ids: StaticArray<u32>,
    fleet: Fleet,
  ) {
    const table = config.endpoints;
    const book = new LoadBook(ids);
    book.adopt(vm.store, fleet);
    this.book = book;
    if (config.adapters) this.adapters = new AdapterBook(table.count);
    this.dueMs = new StaticArray<u64>(table.count);
    this.open = new StaticArray<u8>(table.count);
    const source = config.metrics.source;
    this.path = new Bytes(source.path);
    this.answer = new Exposition(namesOf(new EngineMetrics("")));
    for (let i = 0; i < table.count; i++) {
      this.hosts.push(new Bytes(table.hostPort[i]));
      const other = source.port > 0 && source.port != table.port[i];
      this.targets.push(other ? new Bytes(joinHostPort(table.address[i], source.port)) : this.hosts[i]);
      this.names.push(namesOf(engineOf(config, i)));
    }
  }

  dispose(): void {
    this.book.dispose();
    const adapters = this.adapters;
    if (adapters) adapters.dispose();
  }

  entry(i: i32): LoadEntry {
    return this.book.entry(i);
  }

  /** Starts what is due, as far as the number of calls in flight allows. */
  tick(nowMs: u64): void {
    this.nowMs = nowMs;
    this.takeReports();
    this.startDue();
    if (!this.book.dirty) return;
    this.book.write(this.vm.store);
    const adapters = this.adapters;
    if (adapters) adapters.write(this.vm.store);
  }

  private takeReports(): void {
    const ids = consumeReports(this.vm.store);
    for (let r = 0; r < ids.length; r++) {
      for (let i = 0; i < this.config.endpoints.count; i++) {
        if (this.book.entry(i).id == ids[r]) {
          this.failed(i);
          this.vm.stats.connectFailures.add(1);
        }
      }
    }
  }

  private startDue(): void {
    const n = this.config.endpoints.count;
    if (!this.config.metrics.enabled) return;
    for (let k = 0; k < n && this.calls.length < this.config.options.scrape.concurrency; k++) {
      const i = this.next;
      this.next = i + 1 < n ? i + 1 : 0;
      if (unchecked(this.open[i]) || unchecked(this.dueMs[i]) > this.nowMs) continue;
      // The rhythm stays, however long an answer takes; a holder that is late does not catch up.
      const due = unchecked(this.dueMs[i]) + <u64>this.config.options.scrape.intervalMs;
      unchecked((this.dueMs[i] = due > this.nowMs ? due : this.nowMs + <u64>this.config.options.scrape.intervalMs));
      this.call(i, false);
    }
  }

  private call(i: i32, health: bool): void {
    const config = this.config;
    const tls = config.options.tls;
    const scheduler = config.scheduler;
    const secure = tls.scrape || (tls.decode && scheduler.decodeCapable[i]) || (tls.prefill && scheduler.prefillCapable[i]) || (tls.encode && scheduler.encodeCapable[i]);
    const target = health ? this.hosts[i] : this.targets[i];
    const path = health ? HEALTH : this.path;
    const pairs = this.pairs;
    pairs.clear();
    pairs.add(METHOD.at, METHOD.size, GET.at, GET.size);
    pairs.add(PATH.at, PATH.size, path.at, path.size);
    pairs.add(AUTHORITY.at, AUTHORITY.size, target.at, target.size);
    pairs.add(TARGET.at, TARGET.size, target.at, target.size);
    const token = httpCall(secure ? TLS_CLUSTER : PLAIN_CLUSTER, pairs, config.options.scrape.timeoutMs);
    if (!token) {
      this.open[i] = 0;
      this.failed(i);
      return;
    }
    const call = this.spare.length ? this.spare.pop() : new Call();
    call.token = token;
    call.endpoint = i;
    call.health = health;
    this.open[i] = 1;
    this.calls.push(call);
  }

  /** A call has been answered, or has failed: then `headers` is 0. */
  answered(token: u32, headers: u32, bodySize: u32, nowMs: u64): void {
    this.nowMs = nowMs;
    let at = -1;
    for (let c = 0; c < this.calls.length; c++) if (this.calls[c].token == token) at = c;
    if (at < 0) return;
    const call = this.calls[at];
    this.calls[at] = this.calls[this.calls.length - 1];
    this.calls.pop();
    this.spare.push(call);
    const i = call.endpoint;
    this.open[i] = 0;
    const status = headers && getHeader(HeaderMap.CallResponse, STATUS) ? valueNumber() : 0;
    if (call.health) this.healthAnswered(i, status);
    else this.metricsAnswered(i, status, bodySize);
    this.startDue();
  }

  private metricsAnswered(i: i32, status: i32, bodySize: u32): void {
    // A sidecar whose engine is gone answers for it with a 5xx.
    if (!status || status >= 500) {
      this.failed(i);
      return;
    }
    if (status == 200) this.read(i, bodySize);
    this.call(i, true);
  }

  private healthAnswered(i: i32, status: i32): void {
    if (!status) {
      this.failed(i);
      return;
    }
    const e = this.book.entry(i);
    const was = e.flags;
    if (status == 503) e.flags |= DRAINING;
    else e.flags &= ~DRAINING;
    e.failures = 0;
    e.flags |= SCRAPED;
    e.flags &= ~UNREACHABLE;
    this.book.dirty = true;
    this.vm.stats.scrapes.add(1);
    // Back from refused connections: whatever it held is gone.
    if (was & UNREACHABLE) this.restarted(i);
  }

  private failed(i: i32): void {
    const e = this.book.entry(i);
    e.failures++;
    if (e.failures >= FAILURES_OUT) e.flags |= UNREACHABLE;
    this.book.dirty = true;
    this.vm.stats.scrapeFailures.add(1);
  }

  private read(i: i32, bodySize: u32): void {
    const answer = this.answer;
    answer.start(this.names[i]);
    const size = min(bodySize, MAX_ANSWER);
    if (bodySize > MAX_ANSWER) this.vm.stats.scrapeTruncated.add(1);
    for (let from: u32 = 0; from < size; from += PIECE) {
      const mark = arenaMark();
      if (readPiece(BufferKind.CallResponseBody, from, min(PIECE, size - from))) answer.feed(pieceAt, pieceSize);
      arenaRelease(mark);
    }
    answer.finish();
    const e = this.book.entry(i);
    const started = answer.startTime;
    const counter = answer.counter;
    const again = (known(started) && e.startTime && started != e.startTime) || (known(counter) && counter < e.counter);
    if (known(started)) e.startTime = started;
    if (known(counter)) e.counter = counter;
    if (again) this.restarted(i);
    e.clearKnown();
    if (known(answer.waiting)) {
      e.waiting = <f32>answer.waiting;
      e.setKnown(KNOWN_WAITING);
    }
    if (known(answer.running)) {
      e.running = <f32>answer.running;
      e.setKnown(KNOWN_RUNNING);
    }
    if (known(answer.kvUsage)) {
      e.kvUsage = <f32>answer.kvUsage;
      e.setKnown(KNOWN_KV_USAGE);
    }
    e.blockTokens = known(answer.blockTokens) ? <u32>Math.min(Math.max(answer.blockTokens, 0), 1048576.0) : 0;
    e.blocks = known(answer.blocks) ? <u32>Math.min(Math.max(answer.blocks, 0), 4e9) : 0;
    e.inflight = <u16>min<u32>(this.vm.inflight.requestsOf(e.id), 0xffff);
    e.scrapedMs = this.nowMs;
    this.book.dirty = true;
    const adapters = this.adapters;
    if (adapters) adapters.note(i, e.id, answer);
  }

  private restarted(i: i32): void {
    const id = this.renewal.renew(i);
    if (!id) return;
    this.vm.stats.renewed.add(1);
    const flags = this.book.entry(i).flags;
    this.book.renew(i, id);
    this.book.entry(i).flags = flags & (SCRAPED | DRAINING);
  }
}

function known(value: f64): bool {
  return value == value;
}

function engineOf(config: LoadedConfig, i: i32): EngineMetrics {
  const extractor = config.metrics.extractor;
  const labels = config.endpoints.labels[i];
  let type = extractor.defaultEngine;
  if (labels.has(extractor.engineLabelKey)) type = labels.get(extractor.engineLabelKey);
  else if (labels.has("inference.networking.k8s.io/engine-type")) type = labels.get("inference.networking.k8s.io/engine-type");
  let fallback: EngineMetrics | null = null;
  for (let e = 0; e < extractor.engines.length; e++) {
    if (extractor.engines[e].name == type) return extractor.engines[e];
    if (extractor.engines[e].name == extractor.defaultEngine) fallback = extractor.engines[e];
  }
  return fallback ? fallback : new EngineMetrics(type);
}

function namesOf(e: EngineMetrics): EngineNames {
  return new EngineNames(e.waiting, e.running, e.kvUsage, e.cacheInfo, e.blockSizeLabel, e.numBlocksLabel, e.blockSize, e.numBlocks, e.name == "vllm" ? VLLM_COUNTER : "", e.lora);
}
