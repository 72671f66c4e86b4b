// The scanner and the configuration's validator as a module with plain bindings, for the sidecar and the renderer: what they read is read by the same code as the filter's.
//
// Numbers and addresses only. A scan: `scanStart` gives a handle; `scanRoom` an address to copy the next piece to, `scanFeed` reads it; `scanEnd` the error. Then the
// results stand at `scanResult`, as 32-bit words (see `Result`), until the handle is used again or given back with `scanFree`.
import { loadDocument, renderReport } from "./config";
import { KeySpan, MediaEstimate, MediaSpan, MemberSpan, Name, RequestView, Scanner, spelling, useEstimate } from "./request";

/** A piece is at most so long. */
const ROOM: u32 = 256 << 10;
const room = heap.alloc(ROOM);
const view = new RequestView();
let seed: u64 = 0x6a09e667f3bcc908;

@unmanaged
class Result {
  error: u32;
  errorOffset: u32;
  isObject: u32;
  objectStart: u32;
  objectEnd: u32;
  whole: u32;
  stream: u32;
  duplicates: u32;
  members: usize;
  memberCount: u32;
  media: usize;
  mediaCount: u32;
  tokens: u32;
  hasTokens: u32;
  distinct: u32;
  /** Bytes of one member and of one media record. */
  memberSize: u32;
  mediaSize: u32;
  // What the filter's side takes from a body (RequestView); of use only after `scanStartAs`.
  shape: u32;
  blockTokens: u32;
  model: usize;
  modelSize: u32;
  keys: usize;
  keyCount: u32;
  spans: usize;
  spanCount: u32;
  spanSize: u32;
  items: usize;
  mmItems: u32;
  keptForLow: u32;
  keptForHigh: u32;
  hasPrompt: u32;
}
const result = changetype<Result>(heap.alloc(offsetof<Result>()));

const spare: usize[] = [];

/** A secret for the keys of media parts; once, before the first scan. */
export function useSeed(high: u32, low: u32): void {
  seed = ((<u64>high << 32) | <u64>low) | 1;
}

/** Begins a body of API shape `shape` (ShapeId). Returns the scan's handle. */
export function scanStart(shape: u32): usize {
  const s = spare.length ? changetype<Scanner>(spare.pop()) : Scanner.make();
  s.start();
  s.reader.start(shape, seed, 0, 0, true);
  return changetype<usize>(s);
}

/** Bits of `scanStartAs`: member spans are reported (as `scanStart` does), the body is read strictly (FilterOptions.strict). */
const SPANS: u32 = 1;
const STRICT: u32 = 2;

/** The same as the filter reads it: with the keys of blocks of `blockTokens` tokens (0: tokens are counted only), at most `maxBlocks` of them. */
export function scanStartAs(shape: u32, blockTokens: u32, maxBlocks: u32, flags: u32): usize {
  const handle = scanStart(shape);
  const r = changetype<Scanner>(handle).reader;
  r.start(shape, seed, blockTokens, maxBlocks, (flags & SPANS) != 0);
  if (flags & STRICT) r.beStrict();
  return handle;
}

class FixedEstimate extends MediaEstimate {
  constructor(private readonly video: u32) {
    super();
  }
  videoTokens(): u32 {
    return this.video;
  }
}

/** Settings of the media's token estimate (`MediaEstimate`) for all scans from here on. */
export function estimateWith(imageStatic: u32, imageFactor: u32, imagePixels: u32, videoTokens: u32): void {
  const e = new FixedEstimate(videoTokens);
  e.imageStatic = imageStatic;
  e.imageFactor = imageFactor;
  e.imagePixels = imagePixels;
  useEstimate(e);
}

/** Where the next piece goes; it is `scanRoomSize` bytes long and is read by `scanFeed` at once, so all scans share it. */
export function scanRoom(): usize {
  return room;
}

export function scanRoomSize(): u32 {
  return ROOM;
}

export function scanFeed(handle: usize, size: u32): void {
  changetype<Scanner>(handle).feed(room, size);
}

/** The body has ended. Returns the address of the result. */
export function scanEnd(handle: usize): usize {
  const s = changetype<Scanner>(handle);
  view.take(s);
  const r = s.reader;
  result.error = <u32>view.error;
  result.errorOffset = s.offset;
  result.isObject = r.isObject;
  result.objectStart = r.objectStart;
  result.objectEnd = r.objectEnd;
  result.whole = <u32>view.whole;
  result.stream = <u32>view.stream;
  result.duplicates = <u32>view.duplicates;
  result.members = r.members;
  result.memberCount = r.memberCount;
  result.media = r.media;
  result.mediaCount = r.mediaCount;
  result.tokens = view.tokens;
  result.hasTokens = <u32>view.hasTokens;
  result.distinct = view.mmDistinct;
  result.memberSize = offsetof<MemberSpan>();
  result.mediaSize = offsetof<MediaSpan>();
  result.shape = view.shape;
  result.blockTokens = view.blockTokens;
  result.model = r.modelAt;
  result.modelSize = r.modelSize;
  result.keys = view.keys;
  result.keyCount = view.keyCount;
  result.spans = changetype<usize>(view.span(0));
  result.spanCount = view.spanCount;
  result.spanSize = offsetof<KeySpan>();
  result.items = view.items;
  result.mmItems = view.mmItems;
  result.keptForLow = <u32>view.keptFor;
  result.keptForHigh = <u32>(view.keptFor >> 32);
  result.hasPrompt = r.hasPrompt;
  return changetype<usize>(result);
}

/** Gives a scan's memory back for the next one, at any time. */
export function scanFree(handle: usize): void {
  const s = changetype<Scanner>(handle);
  if (spare.length < 64) {
    s.reader.shrink();
    spare.push(handle);
  } else s.dispose();
}

/** How many names there are, and the spelling of each: the wrapper takes its table from here. */
export function nameCount(): u32 {
  return <u32>Name.COUNT;
}

export function nameOfIndex(index: u32): usize {
  return text(spelling(<Name>(<i32>index)));
}

let textBytes: ArrayBuffer = new ArrayBuffer(0);

/** Keeps a text for the caller to read: its address; `textSize` bytes of UTF-8. */
function text(s: string): usize {
  textBytes = String.UTF8.encode(s);
  return changetype<usize>(textBytes);
}

export function textSize(): u32 {
  return textBytes.byteLength;
}

/** Memory for a document. */
export function allocate(size: u32): usize {
  return heap.alloc(max<u32>(size, 1));
}

export function release(at: usize): void {
  heap.free(at);
}

/** Validates the plugin document in the `size` bytes at `at`; returns the report's text (JSON). */
export function validate(at: usize, size: u32): usize {
  // Nothing managed is on the stack here: what the last validation left behind goes (runtime `minimal`).
  __collect();
  return text(renderReport(loadDocument(String.UTF8.decodeUnsafe(at, size))));
}

export function abort_(message: string | null, fileName: string | null, line: u32, column: u32): void {
  unreachable();
}
