// One request's life: headers, body piece by piece, one decision, what it puts in flight, and the release of it.
import { Decision, Outcome } from "../disagg/decision";
import { dataParallelHostPort, hostPortOf } from "../disagg/headers";
import { DecodeReason, PrefillReason } from "../disagg/reasons";
import { bind, boundTo, EndpointTable, fnv1a32, idHash, nameHash, reportFailure } from "../endpoints";
import {
  arenaMark,
  arenaRelease,
  BufferKind,
  Bytes,
  DataStatus,
  findHeader,
  getHeader,
  getProperty,
  HeaderMap,
  HeadersStatus,
  isText,
  nowMs,
  pieceAt,
  pieceSize,
  propertyAt,
  propertySize,
  readMap,
  readPiece,
  removeHeader,
  setHeader,
  setProperty,
  StreamContext,
  valueAt,
  valueNumber,
  valueSize,
  Writer,
} from "../host";
import { itemsOf } from "../disagg/encode";
import { MOST_ITEMS, NeverSplit } from "../scheduling/request";
import { PassStage, Picks } from "../scheduling/pass";
import { RequestView, Scanner, ScanError, ShapeId, shapeOf, shapeOfPath } from "../request";
import { Space } from "../store";
import { clear } from "../words";
import { CreditTrail } from "./credit";
import { priorityOf, readHeaders } from "./headers";
import { readSubset } from "./subset";
import { writePicks } from "./picks";
import { RecordFacts, writeLine, writeRecord } from "./record";
import { sendError, sendOutcome } from "./reply";
import { FilterRoot, LOAD_AGE_MS } from "./root";

/** A body is copied in by pieces of at most this size. */
const PIECE: u32 = 256 << 10;

const PATH = new Bytes(":path");
const CONTENT_ENCODING = new Bytes("content-encoding");
const REQUEST_ID = new Bytes("x-request-id");
const PREFER = new Bytes("prefer");
const DESTINATION = new Bytes("x-gateway-destination-endpoint");
const PREFILLER = new Bytes("x-prefiller-host-port");
const ENCODERS = new Bytes("x-encoder-hosts-ports");
const KV_SOURCE = new Bytes("x-kv-cache-source-host-port");
const DATA_PARALLEL = new Bytes("x-data-parallel-host-port");
const DECISION = new Bytes("x-crosspoint-decision");
const RECORD = new Bytes("crosspoint_decision");
/** Set by Envoy's router where the virtual host says `include_request_attempt_count`; a client's own is stripped. A tenth of what a property costs. */
const ATTEMPT_COUNT = new Bytes("x-envoy-attempt-count");
const ATTEMPTS = new Bytes("upstream\0request_attempt_count");
const RESPONSE_FLAGS = new Bytes("response\0flags");
const UPSTREAM_ADDRESS = new Bytes("upstream\0address");
const STATUS = new Bytes(":status");
/** Set by the sidecar: who did the prefill (docs/sidecar.md). */
const PREFILLED_BY = new Bytes("x-crosspoint-prefilled-by");
/** Counters are told to Envoy at most so often. */
const SETTLED_MS: u64 = 5;
/** The index's counts are told to other VMs at most so often: they bound the memory and decide nothing before an endpoint's is full, which is told at once. */
const INDEX_SETTLED_MS: u64 = 25;
const RESPONSE_ID = new Bytes("x-crosspoint-response-id");
const RESPONSES = new Bytes("/v1/responses/");
/** Bit of Envoy's response flags: the connection to the upstream could not be made. */
const CONNECTION_FAILURE: u64 = 0x20;

const record = new Writer(1024);
const value = new Writer(256);
const facts = new RecordFacts();
/** Blocks that each endpoint holds of one prompt; grown to the fleet. */
let matched: StaticArray<i32> = new StaticArray<i32>(0);

export class RequestStream extends StreamContext {
  private scanner: usize = 0;
  private shape: u32 = 0;
  private seen: u32 = 0;
  private decided: u32 = 0;
  /** A reply of our own has been sent: nothing further is done for this stream. */
  private answered: bool = false;
  // What it put in flight, released exactly once each.
  private decodeId: u32 = 0;
  private decodeTokens: i32 = 0;
  private prefillId: u32 = 0;
  private prefillTokens: i32 = 0;
  private encoders: StaticArray<u32> = new StaticArray<u32>(MOST_ITEMS);
  private encoderCount: i32 = 0;
  /** Distinct media items. */
  private items: i32 = 0;
  private decodePlace: i32 = -1;
  private prefillPlace: i32 = -1;
  private encodePlace: i32 = -1;
  /** Id of the endpoint that was picked, whoever answered. */
  private pickedId: u32 = 0;
  private readonly trail: CreditTrail = new CreditTrail();
  private recordText: ArrayBuffer | null = null;

  constructor(private readonly root: FilterRoot) {
    super();
  }

  reset(): void {
    this.scanner = 0;
    this.shape = 0;
    this.seen = 0;
    this.decided = 0;
    this.answered = false;
    this.decodeId = 0;
    this.decodeTokens = 0;
    this.prefillId = 0;
    this.prefillTokens = 0;
    this.encoderCount = 0;
    this.decodePlace = -1;
    this.recordText = null;
    const v = this.root.vm!;
    v.served = true;
    v.inflight.streams++;
  }

  onRequestHeaders(headers: u32, endOfStream: bool): HeadersStatus {
    const root = this.root;
    if (endOfStream) return this.decideAtOnce(DecodeReason.NoBody);
    this.shape = getHeader(HeaderMap.Request, PATH) ? shapeOfPath(valueAt, valueSize) : ShapeId.Other;
    if (!((root.shapes >> this.shape) & 1)) this.shape = ShapeId.Other;
    if (this.shape == ShapeId.Other) {
      if (!root.passthrough) {
        this.answered = true;
        root.vm!.stats.rejected.add(1);
        sendError(400, "BadRequestError", "no parser of the configuration reads this path", "");
        return HeadersStatus.StopIteration;
      }
      // Not one of the shapes that are read: on its way at once, its body never enters the VM.
      return this.decideAtOnce(DecodeReason.UnknownPath);
    }
    if (getHeader(HeaderMap.Request, CONTENT_ENCODING) && !isIdentity(valueAt, valueSize)) return this.decideAtOnce(DecodeReason.UndecidedEncoding);
    const s = root.vm!.takeScanner();
    s.start();
    s.reader.start(this.shape, root.vm!.secret, <u32>root.blockTokens, <u32>root.maxBlocks, false);
    if (root.config!.options.strict) s.reader.beStrict();
    this.scanner = changetype<usize>(s);
    // The body comes before the headers go on: what is decided by it stands in them.
    return HeadersStatus.StopIteration;
  }

  /** Decides without a body. */
  private decideAtOnce(reason: DecodeReason): HeadersStatus {
    this.decide(reason);
    return this.answered ? HeadersStatus.StopIteration : HeadersStatus.Continue;
  }

  onRequestBody(size: u32, endOfStream: bool): DataStatus {
    if (this.answered) return DataStatus.StopIterationAndBuffer;
    if (!this.scanner) return DataStatus.Continue;
    const s = changetype<Scanner>(this.scanner);
    // `size` is all that is buffered: only the new bytes are copied in.
    while (this.seen < size) {
      const mark = arenaMark();
      const want = min(PIECE, size - this.seen);
      if (!readPiece(BufferKind.RequestBody, this.seen, want) || !pieceSize) {
        arenaRelease(mark);
        break;
      }
      s.feed(pieceAt, pieceSize);
      this.seen += pieceSize;
      arenaRelease(mark);
    }
    if (!endOfStream) return DataStatus.StopIterationAndBuffer;
    this.decideByBody();
    return this.answered ? DataStatus.StopIterationAndBuffer : DataStatus.Continue;
  }

  /** A body with trailers, and every body that Envoy's decompressor opened, ends here. */
  onRequestTrailers(): void {
    if (!this.answered && this.scanner) this.decideByBody();
  }

  private decideByBody(): void {
    const v = this.root.vm!;
    const s = changetype<Scanner>(this.scanner);
    v.view.take(s);
    if (this.root.config!.options.strict) {
      const why = whyRefused(s, v.view);
      if (why.length) {
        this.refuse(why);
        return;
      }
    }
    if (v.view.error == ScanError.None) this.decide(DecodeReason.Picked);
    else this.decide(v.view.error == ScanError.Empty && !this.seen ? DecodeReason.NoBody : DecodeReason.UndecidedBody);
    this.dropScanner();
  }

  /** Strict mode: 400 before any leg is called (FilterOptions.strict). */
  private refuse(why: string): void {
    this.answered = true;
    this.root.vm!.stats.rejected.add(1);
    sendError(400, "BadRequestError", "the request's body is refused: " + why, "");
    this.dropScanner();
  }

  private dropScanner(): void {
    if (!this.scanner) return;
    this.root.vm!.giveScanner(changetype<Scanner>(this.scanner));
    this.scanner = 0;
  }

  /** The one decision. `reason` Picked: by the body that `vm.view` has read; any other: by load, for that reason. */
  private decide(reason: DecodeReason): void {
    this.decided++;
    if (this.decided > 1) return;
    const root = this.root;
    const config = root.config!;
    const v = root.vm!;
    const table = config.endpoints;
    const now = nowMs();
    root.index!.begin();
    root.readLoad(now, LOAD_AGE_MS);
    const view = v.view;
    const f = v.facts;
    f.reset();
    const readable = reason == DecodeReason.Picked;
    if (readable) {
      f.hasTokens = view.hasTokens;
      f.tokens = <i32>view.tokens;
      f.blockTokens = root.blockTokens;
      f.mmItems = <i32>view.mmItems;
      f.mmDistinct = <i32>view.mmDistinct;
      f.items = view.items;
      f.nowS = <u32>(now / 1000);
      const media = root.media;
      if (media && view.mmItems) media.match(f.items, f.itemCount, table.heldItems);
      if (config.adapters) f.model = this.modelHash();
      readHeaders(root.headers, f);
      f.neverSplit = <NeverSplit>(<i32>view.whole);
      f.splits = shapeOf(this.shape).splits;
      f.ifAvailable = wantsCache();
      this.match(view, table);
      let blocks: u32 = 0;
      for (let i: u32 = 0; i < view.spanCount; i++) blocks += view.span(i).count;
      f.totalBlocks = <i32>blocks;
    } else this.clearMatches(table);
    f.pinned = this.pinned(readable ? view.keptFor : 0, <u32>(now / 1000));
    if (config.scheduler.usesRequestHash) f.requestHash = requestHash();
    f.priority = priorityOf(config.options.objectives);
    if (config.options.subsetHint) f.subset = readSubset(table);
    const decision = readable ? config.scheduler.decide(f) : config.scheduler.decideByLoad(f, reason);
    this.count(decision, f.tokens, table);
    this.writeRecord(decision, table, readable);
    if (decision.outcome != Outcome.Ok) {
      this.answered = true;
      v.stats.rejected.add(1);
      v.settle(now);
      sendOutcome(decision, <u32>config.options.noDecodeStatus);
      return;
    }
    this.route(decision, table);
    this.putInFlight(decision, table, f.tokens, now);
    if (readable && view.keyCount && shapeOf(this.shape).computes) {
      this.trail.give(root, view, decision.decode.first, decision.prefill.first, <u32>(now / 1000));
      root.index!.settleAfter(root.fleet, now, INDEX_SETTLED_MS);
    }
  }

  /** The endpoint that keeps the response which the request goes on with, or asks for by its path. */
  private pinned(hash: u64, nowS: u32): i32 {
    if (!hash && this.shape == ShapeId.Other && getHeader(HeaderMap.Request, PATH)) hash = responseOfPath(valueAt, valueSize);
    if (!hash) return -1;
    return this.root.fleet.place(boundTo(this.root.vm!.store, Space.Responses, hash, nowS, 0));
  }

  private clearMatches(table: EndpointTable): void {
    clear(changetype<usize>(table.matchedBlocks), <usize>table.count << 2);
    clear(changetype<usize>(table.matchedTokens), <usize>table.count << 2);
  }

  /** Looks every prompt up; several are matched one by one and summed (scheduler PX-15). */
  private match(view: RequestView, table: EndpointTable): void {
    this.clearMatches(table);
    const n = table.count;
    if (matched.length != n) matched = new StaticArray<i32>(n);
    const index = this.root.index!;
    for (let k: u32 = 0; k < view.spanCount; k++) {
      const span = view.span(k);
      clear(changetype<usize>(matched), <usize>n << 2);
      if (!index.lookup(view.keys + (<usize>span.first << 3), span.count, this.root.fleet, matched)) continue;
      for (let i = 0; i < n; i++) {
        const blocks = unchecked(matched[i]);
        if (!blocks) continue;
        unchecked((table.matchedBlocks[i] = table.matchedBlocks[i] + blocks));
        unchecked((table.matchedTokens[i] = table.matchedTokens[i] + <i32>view.tokensOf(k, <u32>blocks)));
      }
    }
  }

  private count(decision: Decision, tokens: i32, table: EndpointTable): void {
    const stats = this.root.vm!.stats;
    stats.requests.add(1);
    const decode = stats.decode[decision.decodeReason];
    if (decode) decode.add(1);
    const prefill = stats.prefill[decision.prefillReason];
    if (prefill) prefill.add(1);
    const encode = stats.encode[decision.encodeReason];
    if (encode) encode.add(1);
    if (decision.outcome != Outcome.Ok) return;
    stats.decisions[decision.type].add(1);
    stats.promptTokens.add(<u32>tokens);
    const place = decision.decode.first;
    stats.hitTokens.add(<u32>table.matchedTokens[place]);
    if (!table.known[place]) stats.neutral.add(1);
  }

  private writeRecord(decision: Decision, table: EndpointTable, readable: bool): void {
    const v = this.root.vm!;
    facts.modelSize = 0;
    facts.tokens = 0;
    facts.mmItems = 0;
    facts.cachedTokens = 0;
    if (readable) {
      const reader = changetype<Scanner>(this.scanner).reader;
      facts.modelAt = reader.modelAt;
      facts.modelSize = reader.modelSize;
      facts.tokens = v.view.tokens;
      facts.mmItems = v.view.mmItems;
      if (decision.decode.count) facts.cachedTokens = <u32>table.matchedTokens[decision.decode.first];
    }
    facts.decisions = this.decided;
    writeLine(record, table, decision, facts);
    setProperty(RECORD, record.at, record.size);
    if (!this.root.config!.options.reasonHeader) return;
    writeRecord(record, table, decision, facts);
    const text = new ArrayBuffer(record.size);
    memory.copy(changetype<usize>(text), record.at, record.size);
    this.recordText = text;
  }

  /** Sets the routing headers, and removes what is not set: nobody but this filter decides them (scheduler §3.5, L1). */
  private route(decision: Decision, table: EndpointTable): void {
    const scheduler = this.root.config!.scheduler;
    setPicks(DESTINATION, scheduler.destinations, decision.decode);
    setPicks(PREFILLER, table.hostPort, decision.prefill);
    setPicks(ENCODERS, table.hostPort, decision.encode);
    setText(KV_SOURCE, hostPortOf(table, decision.kvSource));
    if (scheduler.primaryPort) setText(DATA_PARALLEL, dataParallelHostPort(table, decision.decode, scheduler.primaryPort));
  }

  private putInFlight(decision: Decision, table: EndpointTable, tokens: i32, now: u64): void {
    const v = this.root.vm!;
    const params = this.root.config!.inflight;
    const inflight = v.inflight;
    const decode = decision.decode.first;
    this.decodePlace = decode;
    this.prefillPlace = decision.prefill.first;
    this.encodePlace = decision.encode.first;
    this.pickedId = table.id[decode];
    this.decodeId = table.id[decode];
    this.decodeTokens = params.tokensFor(tokens, table.matchedTokens[decode]);
    inflight.change(this.decodeId, 1, this.decodeTokens);
    if (decision.prefill.count) {
      const prefill = decision.prefill.first;
      this.prefillId = table.id[prefill];
      this.prefillTokens = params.tokensFor(tokens, table.matchedTokens[prefill]);
      inflight.change(this.prefillId, 1, this.prefillTokens);
    }
    this.putItems(decision, table, <u32>(now / 1000));
    this.flush(now);
  }

  /** What is in flight at an encoder is items, one encode request each; and who encodes an item will have it. Without encoders it is who computes the prompt. */
  private putItems(decision: Decision, table: EndpointTable, nowS: u32): void {
    const v = this.root.vm!;
    const f = v.facts;
    const encode = decision.encode;
    this.encoderCount = encode.count;
    this.items = f.mmDistinct;
    for (let i = 0; i < encode.count; i++) {
      this.encoders[i] = table.id[encode.list[i]];
      v.inflight.change(this.encoders[i], itemsOf(i, encode.count, this.items), 0);
    }
    const media = this.root.media;
    if (!media || !shapeOf(this.shape).computes) return;
    for (let i = 0, n = f.itemCount; i < n; i++) {
      const place = encode.count ? encode.list[i % encode.count] : decision.prefill.count ? decision.prefill.first : decision.decode.first;
      media.credit(f.items, i, table.id[place], this.root.config!.mediaItems, nowS);
    }
  }

  private modelHash(): u32 {
    const reader = changetype<Scanner>(this.scanner).reader;
    return nameHash(reader.modelAt, reader.modelSize);
  }

  private flush(now: u64): void {
    const inflight = this.root.vm!.inflight;
    const before = inflight.lost;
    inflight.flushSoon(now);
    this.root.vm!.stats.lostFlightWrites.add(inflight.lost - before);
  }

  onResponseHeaders(headers: u32, endOfStream: bool): void {
    const text = this.recordText;
    if (text) setHeader(HeaderMap.Response, DECISION, changetype<usize>(text), text.byteLength);
    if (!this.decodeId) return;
    const now = nowMs();
    readMap(HeaderMap.Response);
    const status = findHeader(STATUS) ? valueNumber() : 0;
    // Sent once and answered: by the picked one. (A pod that this filter knows before Envoy's cluster does may be another one for some milliseconds.)
    const once = status > 0 && status < 500 && getHeader(HeaderMap.Request, ATTEMPT_COUNT) && valueNumber() == 1;
    const other = once ? -1 : this.followDecode(status);
    const prefilled = this.prefilledBy();
    if (this.trail.open) {
      if (status >= 200 && status < 300) this.trail.confirm(this.root, other, prefilled, <u32>(now / 1000));
      else this.trail.takeBack(this.root);
    }
    this.bindResponse(<u32>(now / 1000));
    this.sendTokens(other < 0 ? this.decodePlace : other, prefilled == -1 ? this.prefillPlace : prefilled);
    // The first response byte: prefill and encode are done, the prompt is no longer waiting to be computed (scheduler §5.3).
    const inflight = this.root.vm!.inflight;
    if (this.decodeTokens) inflight.change(this.decodeId, 0, -this.decodeTokens);
    this.decodeTokens = 0;
    this.releaseOthers();
    this.flush(now);
    // In front of the answer, so that who has it finds its request counted.
    this.root.vm!.settleAfter(now, SETTLED_MS);
  }

  /**
   * Envoy sent the request to another pod than the picked one, because that refused: what is in flight goes with it (the reference's bookkeeping stays with the first,
   * scheduler §12.4). Returns the other pod's table position, -1 when it was the picked one or none is known.
   */
  private followDecode(status: i32): i32 {
    const table = this.root.config!.endpoints;
    let place = -1;
    if (getProperty(UPSTREAM_ADDRESS)) {
      if (!isText(table.hostPort[this.decodePlace], propertyAt, propertySize)) place = placeOf(table, propertyAt, propertySize);
      else if (status > 0 && status < 500) return -1;
    }
    if (connectFailed()) reportFailure(this.root.vm!.store, this.pickedId);
    if (place < 0 || !table.id[place]) return -1;
    const inflight = this.root.vm!.inflight;
    inflight.change(this.decodeId, -1, -this.decodeTokens);
    this.decodeId = table.id[place];
    inflight.change(this.decodeId, 1, this.decodeTokens);
    return place;
  }

  /** The client carries its session's endpoints itself, by the headers that session plugins name. */
  private sendTokens(decode: i32, prefill: i32): void {
    const names = this.root.echoes;
    for (let i = 0; i < names.length; i++) {
      const session = this.root.config!.echoes[i];
      const place = session.stage == PassStage.Decode ? decode : session.stage == PassStage.Prefill ? prefill : this.encodePlace;
      if (place < 0) continue;
      value.clear();
      value.text(session.tokens[place]);
      setHeader(HeaderMap.Response, names[i], value.at, value.size);
    }
  }

  /** The engine keeps its response under the id that the sidecar names: what goes on with it must come back to this pod. */
  private bindResponse(nowS: u32): void {
    if (this.shape != ShapeId.Responses || !findHeader(RESPONSE_ID)) return;
    bind(this.root.vm!.store, Space.Responses, idHash(valueAt, valueSize), this.decodeId, nowS);
    removeHeader(HeaderMap.Response, RESPONSE_ID);
  }

  /** What the sidecar says of the prefill leg, for nobody but us: another prefiller's table position, -2 when the engine did it itself, -1 when it was the picked one. */
  private prefilledBy(): i32 {
    if (!this.prefillId || !findHeader(PREFILLED_BY)) return -1;
    let place: i32 = -2;
    if (!isText("local", valueAt, valueSize)) {
      place = placeOf(this.root.config!.endpoints, valueAt, valueSize);
      if (place < 0 || this.root.config!.endpoints.id[place] == this.prefillId) place = -1;
    }
    removeHeader(HeaderMap.Response, PREFILLED_BY);
    return place;
  }

  private releaseOthers(): void {
    const inflight = this.root.vm!.inflight;
    if (this.prefillId) inflight.change(this.prefillId, -1, -this.prefillTokens);
    this.prefillId = 0;
    this.prefillTokens = 0;
    for (let i = 0; i < this.encoderCount; i++) inflight.change(this.encoders[i], -itemsOf(i, this.encoderCount, this.items), 0);
    this.encoderCount = 0;
  }

  /** Gives back all that is still in flight. Whatever ends a stream ends here: success, reset, time-out, a reply of Envoy's own. */
  private release(): void {
    if (!this.decodeId) return;
    this.root.vm!.inflight.change(this.decodeId, -1, -this.decodeTokens);
    this.decodeId = 0;
    this.decodeTokens = 0;
    this.releaseOthers();
    const now = nowMs();
    this.flush(now);
    // The last open stream of this VM: nothing may follow for long.
    if (this.root.vm!.inflight.streams <= 1) this.root.vm!.settleAfter(now, SETTLED_MS);
  }

  onDelete(): void {
    this.dropScanner();
    this.release();
    // No answer came: the client left, the pod reset.
    if (this.trail.open) this.trail.takeBack(this.root);
    this.recordText = null;
    this.root.vm!.inflight.streams--;
    this.root.giveStream(this);
  }
}

/** What is wrong with a body that is read strictly, "" for nothing. The reference refuses what its parsers cannot read (scheduler §6.7), and so does this mode. */
function whyRefused(s: Scanner, view: RequestView): string {
  switch (view.error) {
    case ScanError.None:
      break;
    case ScanError.TooDeep:
      return "it is nested too deeply";
    case ScanError.TooManyMembers:
      return "it has too many members";
    case ScanError.Empty:
      return "it is empty";
    default:
      return "it is not JSON in UTF-8";
  }
  if (view.duplicates) return "a member name stands twice in one object";
  // SGLang serves one model, and its own path names none.
  if (!s.reader.modelSize && view.shape != ShapeId.SglangGenerate) return "model not found in request body";
  return s.reader.hasPrompt ? "" : "it holds no valid messages or prompt";
}

/** Hash of the id in `/v1/responses/ID` and the paths below it, 0 for any other path. */
function responseOfPath(at: usize, size: u32): u64 {
  const head = RESPONSES.size;
  if (size <= head || memory.compare(at, RESPONSES.at, head) != 0) return 0;
  let n = head;
  while (n < size && load<u8>(at + n) != 0x2f && load<u8>(at + n) != 0x3f && load<u8>(at + n) != 0x23) n++;
  return n > head ? idHash(at + head, n - head) : 0;
}

/** Table position of the endpoint with that `host:port`, -1 for none. */
function placeOf(table: EndpointTable, at: usize, size: u32): i32 {
  for (let i = 0; i < table.count; i++) if (isText(unchecked(table.hostPort[i]), at, size)) return i;
  return -1;
}

/** Whether Envoy could not reach the picked pod: it says so itself, or it tried again, which the route lets it do after a refused connection only. */
function connectFailed(): bool {
  if (getProperty(RESPONSE_FLAGS) && propertySize == 8 && load<u64>(propertyAt) & CONNECTION_FAILURE) return true;
  return getProperty(ATTEMPTS) && propertySize == 8 && load<u64>(propertyAt) > 1;
}

function isIdentity(at: usize, size: u32): bool {
  return size == 0 || (size == 8 && load<u64>(at) == 0x797469746e656469);
}

/** Sets a routing header to what is written in `value`; nothing removes it. */
function setValue(name: Bytes): void {
  if (value.size) setHeader(HeaderMap.Request, name, value.at, value.size);
  else removeHeader(HeaderMap.Request, name);
}

function setPicks(name: Bytes, names: StaticArray<string>, picks: Picks): void {
  writePicks(value, names, picks);
  setValue(name);
}

function setText(name: Bytes, text: string): void {
  value.clear();
  value.text(text);
  setValue(name);
}

const IF_AVAILABLE = new Bytes("if-available");

/** `Prefer: if-available` (scheduler §3.8): a comma list, parameters behind `;` ignored, in any case. */
function wantsCache(): bool {
  if (!getHeader(HeaderMap.Request, PREFER)) return false;
  const n = IF_AVAILABLE.size;
  const end = valueAt + valueSize;
  for (let at = valueAt; at < end; at++) {
    while (at < end && load<u8>(at) <= 0x20) at++;
    let k: u32 = 0;
    // The one character that is no letter is what it is in lower case, too.
    while (k < n && at < end && (load<u8>(at) | 0x20) == load<u8>(IF_AVAILABLE.at + k)) {
      k++;
      at++;
    }
    while (at < end && load<u8>(at) <= 0x20) at++;
    if (k == n && (at == end || load<u8>(at) == 0x2c || load<u8>(at) == 0x3b)) return true;
    while (at < end && load<u8>(at) != 0x2c) at++;
  }
  return false;
}

/** Hash of the request's id. */
function requestHash(): u32 {
  return getHeader(HeaderMap.Request, REQUEST_ID) ? fnv1a32(valueAt, valueSize) : 0;
}
