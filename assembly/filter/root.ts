// One configuration on one thread: what a push brings, and what happens between requests.
import { LoadedConfig, loadDocument } from "../config";
import { EndpointIds, Fleet, holdLease, noteSinceScrape, readLoad, reportedBlockTokens } from "../endpoints";
import { BufferKind, Bytes, log, LogLevel, nowMs, pieceAt, pieceSize, random64, readPiece, RootContext, setTick, StreamContext } from "../host";
import { fairCapacity, IndexWalk, MediaIndex, PrefixIndex, pruneFloors, readFloors } from "../prefix";
import { shapesOf, useEstimate } from "../request";
import { EnvoyEstimate } from "./estimate";
import { HeaderSource } from "./headers";
import { Scraper, Renewal } from "./scraper";
import { RequestStream } from "./stream";
import { SLOT_BUDGET, Vm, vm } from "./vm";

/** Ticks come so often; what is slower counts them. */
const TICK_MS: u32 = 250;
/** A decision goes by load that was read at most so long ago: a scrape is older than that, and in-flight load is not written more often (InFlight). */
export const LOAD_AGE_MS: u64 = 5;
const HEAL_EVERY: u32 = 8;
/** Ticks in which a walk over the index is done: a minute. */
const WALK_TICKS: u32 = 240;
/** Blocks of one prompt that are ever hashed, whatever the configuration says. */
const MAX_BLOCKS: i32 = 32768;

export class FilterRoot extends RootContext {
  vm: Vm | null = null;
  config: LoadedConfig | null = null;
  fleet: Fleet = new Fleet([]);
  ids: StaticArray<u32> = [];
  private keys: StaticArray<u64> = [];
  private seen: StaticArray<u32> = [];
  index: PrefixIndex | null = null;
  /** Which encoder has encoded what; null: nobody asks. */
  media: MediaIndex | null = null;
  /** Headers that plugins go by, and those that their tokens are sent back in. */
  headers: HeaderSource[] = [];
  echoes: Bytes[] = [];
  /** Tokens per block at this moment: configured, or what the engines report. */
  blockTokens: i32 = 16;
  maxBlocks: i32 = 0;
  /** Blocks of each endpoint that the index's memory has room for. */
  private fair: i64 = 0;
  staleMs: u64 = 2000;
  /** The shapes that this configuration's parsers read, and whether other bodies pass. */
  shapes: u32 = 1;
  passthrough: bool = true;
  /** When the load record was read; 0: not since the endpoints have their ids. */
  private loadMs: u64 = 0;
  private scraper: Scraper | null = null;
  private walk: IndexWalk | null = null;
  private walking: bool = false;
  private ticks: u32 = 0;
  private readonly spareStreams: RequestStream[] = [];

  onConfigure(size: u32): bool {
    if (!readPiece(BufferKind.PluginConfiguration, 0, size)) {
      log(LogLevel.Error, "crosspoint: no configuration");
      return false;
    }
    const result = loadDocument(String.UTF8.decodeUnsafe(pieceAt, pieceSize));
    const problems = result.problems;
    for (let i = 0; i < problems.warnings.length; i++) log(LogLevel.Warn, "crosspoint: " + told(problems.warnings[i].path, problems.warnings[i].message));
    const config = result.config;
    if (!config) {
      for (let i = 0; i < problems.errors.length; i++) log(LogLevel.Error, "crosspoint: configuration refused: " + told(problems.errors[i].path, problems.errors[i].message));
      return false;
    }
    this.use(config);
    return true;
  }

  private use(config: LoadedConfig): void {
    const v = vm();
    this.vm = v;
    this.config = config;
    config.scheduler.seed(random64());
    this.shapes = shapesOf(config.parsers);
    this.passthrough = config.parsers.includes("passthrough-parser");
    useEstimate(new EnvoyEstimate(config.tokens));
    this.index = v.indexOf(<u32>(config.options.indexBytes / SLOT_BUDGET));
    this.staleMs = <u64>max(2000, 3 * config.options.scrape.intervalMs);
    if (config.mediaItems) this.media = new MediaIndex(v.store);
    for (let i = 0; i < config.headers.length; i++) this.headers.push(new HeaderSource(config.headers[i]));
    for (let i = 0; i < config.echoes.length; i++) this.echoes.push(new Bytes(config.echoes[i].header));
    const table = config.endpoints;
    this.keys = new StaticArray<u64>(table.count);
    for (let i = 0; i < table.count; i++) this.keys[i] = keyOf(table.namespace[i] + "/" + table.name[i] + " " + table.hostPort[i]);
    const ids = new StaticArray<u32>(table.count);
    new EndpointIds(v.store).assign(this.keys, <u64>config.revision, ids);
    this.seen = new StaticArray<u32>(table.count);
    this.useIds(ids);
    this.tune();
    newest = this;
    setTick(TICK_MS);
  }

  /** The endpoints' ids have been given or have changed. */
  private useIds(ids: StaticArray<u32>): void {
    this.ids = ids;
    const table = this.config!.endpoints;
    for (let i = 0; i < ids.length; i++) table.id[i] = ids[i];
    this.fleet = new Fleet(ids);
    this.loadMs = 0;
    readFloors(this.vm!.store, this.fleet);
    this.config!.scheduler.use(this.vm!.store, this.fleet);
    const media = this.media;
    if (media) media.useIds(ids);
  }

  /** The table's dynamic half, read again where it is `ageMs` old. */
  readLoad(now: u64, ageMs: u64): void {
    const v = this.vm!;
    const table = this.config!.endpoints;
    v.inflight.read(this.fleet, table.inflightRequests, table.inflightTokens, now, ageMs);
    // Wraps where the clock was set back: then it is read again.
    if (this.loadMs && now - this.loadMs < ageMs) {
      noteSinceScrape(table);
      return;
    }
    readLoad(v.store, this.fleet, table, now, this.staleMs);
    this.loadMs = now;
  }

  /** Block size and cap; with autoTune they follow what the engines report (scheduler §4.2). */
  private tune(): void {
    const prefix = this.config!.prefix;
    let blockTokens = prefix.blockTokens;
    if (prefix.autoTune) {
      const reported = <i32>reportedBlockTokens(this.vm!.store, this.fleet);
      if (reported > 0) blockTokens = reported;
    }
    this.blockTokens = blockTokens;
    this.maxBlocks = min(MAX_BLOCKS, prefix.maxBlocks(blockTokens));
    this.fair = <i64>fairCapacity(this.config!.options.indexBytes, this.config!.endpoints.count);
  }

  /** Blocks that endpoint `i` is credited with at most: what is configured or reported, as far as the index's memory allows. */
  capacity(i: i32): u32 {
    const config = this.config!;
    const reported = config.prefix.autoTune ? unchecked(config.endpoints.cacheTokens[i]) / <f64>this.blockTokens : 0;
    const wanted = reported >= 1 ? <i64>reported : <i64>config.prefix.lruCapacityPerServer;
    return <u32>min<i64>(this.fair, wanted);
  }

  createStream(): StreamContext {
    const stream = this.spareStreams.length ? this.spareStreams.pop() : new RequestStream(this);
    stream.reset();
    return stream;
  }

  giveStream(stream: RequestStream): void {
    if (this.spareStreams.length < 256) this.spareStreams.push(stream);
  }

  onTick(): void {
    const v = this.vm;
    // Streams of an older configuration may still be open; the work between requests is the newest one's.
    if (!v || newest != this) return;
    const now = nowMs();
    this.work(v, now);
    v.settle(now);
  }

  private work(v: Vm, now: u64): void {
    this.ticks++;
    v.inflight.refresh(now);
    this.refreshIds(v);
    this.index!.settle(this.fleet);
    readFloors(v.store, this.fleet);
    const media = this.media;
    if (media) media.refresh();
    const busy = v.served;
    v.served = v.inflight.streams > 0;
    if (!holdLease(v.store, v.inflight.vm, busy, now)) {
      if (this.scraper) {
        this.scraper!.dispose();
        this.scraper = null;
        this.walking = false;
      }
      if (this.ticks % 4 == 0) this.tune();
      return;
    }
    if (!this.scraper) {
      this.scraper = new Scraper(v, this.config!, new RootRenewal(this), this.ids, this.fleet);
      pruneFloors(v.store, this.fleet);
      if (media) media.prune();
    }
    this.scraper!.tick(now);
    if (this.ticks % HEAL_EVERY == 0) {
      const before = v.inflight.healed;
      v.inflight.heal(now);
      v.stats.healed.add(v.inflight.healed - before);
    }
    this.tune();
    this.walkOn(v);
    this.showRoles(v);
  }

  private walkOn(v: Vm): void {
    const slots = <u32>(this.config!.options.indexBytes / SLOT_BUDGET);
    if (!this.walk) this.walk = new IndexWalk(v.store, slots);
    if (!this.walking) {
      this.walk!.start(this.ids);
      this.walking = true;
    }
    if (this.walk!.step(slots / WALK_TICKS + 1, this.fleet)) this.walking = false;
  }

  /** Endpoints that are left out, by what they could do. */
  private showRoles(v: Vm): void {
    const config = this.config!;
    const table = config.endpoints;
    this.readLoad(nowMs(), 0);
    const scheduler = config.scheduler;
    let decode: u64 = 0;
    let prefill: u64 = 0;
    let encode: u64 = 0;
    for (let i = 0; i < table.count; i++) {
      if (table.usable[i]) continue;
      decode += scheduler.decodeCapable[i];
      prefill += scheduler.prefillCapable[i];
      encode += scheduler.encodeCapable[i];
    }
    v.stats.outDecode.set(decode);
    v.stats.outPrefill.set(prefill);
    v.stats.outEncode.set(encode);
    v.stats.capacity.set(table.count ? this.capacity(0) : 0);
  }

  /** Ids change under a VM's feet when the lease holder sees a restart. */
  private refreshIds(v: Vm): void {
    const seen = this.seen;
    if (!new EndpointIds(v.store).read(this.keys, seen)) return;
    let same = true;
    for (let i = 0; i < seen.length; i++) if (unchecked(seen[i]) != unchecked(this.ids[i])) same = false;
    if (same) return;
    const ids = new StaticArray<u32>(seen.length);
    memory.copy(changetype<usize>(ids), changetype<usize>(seen), <usize>seen.length << 2);
    this.useIds(ids);
    if (this.scraper) {
      this.scraper!.dispose();
      this.scraper = null;
    }
  }

  renew(i: i32): u32 {
    const id = new EndpointIds(this.vm!.store).renew(this.keys[i], this.ids[i]);
    if (!id) return 0;
    const ids = new StaticArray<u32>(this.ids.length);
    memory.copy(changetype<usize>(ids), changetype<usize>(this.ids), <usize>ids.length << 2);
    ids[i] = id;
    this.useIds(ids);
    return id;
  }

  onHttpCallResponse(token: u32, headers: u32, bodySize: u32): void {
    if (this.scraper) this.scraper!.answered(token, headers, bodySize, nowMs());
  }

  onDelete(): void {
    if (this.scraper) this.scraper!.dispose();
    this.scraper = null;
    if (newest == this) newest = null;
    // There is no later.
    const v = this.vm;
    if (v) {
      const now = nowMs();
      v.inflight.flush(now);
      v.settle(now);
      if (this.index) this.index!.settle(this.fleet);
    }
  }
}

/** The root whose configuration came last; only it works between requests. */
export let newest: FilterRoot | null = null;

class RootRenewal extends Renewal {
  constructor(private readonly root: FilterRoot) {
    super();
  }
  renew(endpoint: i32): u32 {
    return this.root.renew(endpoint);
  }
}

function told(path: string, message: string): string {
  return path.length ? path + ": " + message : message;
}

/** An endpoint's key: FNV-1a, 64 bits, of its name and address. Two endpoints of one fleet never have the same in practice, and nobody can choose them but the operator. */
function keyOf(text: string): u64 {
  let h: u64 = 0xcbf29ce484222325;
  for (let i = 0; i < text.length; i++) h = (h ^ <u64>text.charCodeAt(i)) * 0x100000001b3;
  return h;
}
