// Packs a module's static data (see unpack.ts). The module exports `unpack`; afterwards it does not, and calls it itself when it is instantiated.
import binaryen from "binaryen";

const PAGE = 65536;
/** What the build allows (build.mjs): with more, the module would be written in forms that Envoy's V8 does not load. */
const { BulkMemory, BulkMemoryOpt, MutableGlobals, NontrappingFPToInt, SignExt, SIMD128 } = binaryen.Features;
export const FEATURES = BulkMemory | BulkMemoryOpt | MutableGlobals | NontrappingFPToInt | SignExt | SIMD128;

const isNarrow = (bytes) => bytes.every((byte, i) => i % 2 === 0 || byte === 0);

/** The segments, in the order of their places, as whole words of two bytes: {at, bytes, narrow}. Neighbours that are closer than a record's head become one. */
function runsOf(segments) {
  const runs = [];
  for (const { at, data } of segments) {
    const from = at & ~1;
    const words = new Uint8Array(((at + data.length + 1) & ~1) - from);
    words.set(data, at - from);
    const narrow = isNarrow(words);
    const last = runs.at(-1);
    const gap = last === undefined ? Infinity : from - last.at - last.bytes.length;
    if (gap < 0) throw new Error("data segments share a word or overlap");
    if (narrow === last?.narrow && gap <= (narrow ? 8 : 4)) last.bytes = Buffer.concat([last.bytes, Buffer.alloc(gap), words]);
    else runs.push({ at: from, bytes: words, narrow });
  }
  return runs;
}

/** @param segments {at, data}, in the order of their places @returns them as unpack.ts reads them */
export function packed(segments) {
  const out = [];
  let end = 0;
  const record = (at, bytes, narrow) => {
    for (; at - end > 0xfffe; end += 0xfffe) out.push(Buffer.from([0xfe, 0xff, 0, 0]));
    const head = Buffer.alloc(4);
    head.writeUInt16LE(at - end, 0);
    head.writeUInt16LE((bytes.length / 2) | (narrow ? 0x8000 : 0), 2);
    out.push(head, narrow ? bytes.filter((_, i) => i % 2 === 0) : bytes);
    end = at + bytes.length;
  };
  for (const { at, bytes, narrow } of runsOf(segments)) {
    for (let i = 0; i < bytes.length; i += 0xfffe) record(at + i, bytes.subarray(i, i + 0xfffe), narrow);
  }
  out.push(Buffer.alloc(4, 0xff));
  return Buffer.concat(out);
}

function segmentsOf(module) {
  const segments = [];
  for (let i = 0; i < module.getNumDataSegments(); i++) {
    const { offset, data, passive } = module.getDataSegmentInfo(module.getDataSegmentByIndex(i));
    if (passive || typeof offset !== "number") throw new Error("a data segment is not at a constant place");
    segments.push({ at: offset, data: new Uint8Array(data) });
  }
  return segments.sort((a, b) => a.at - b.at);
}

/** @param bytes a module with one memory, no start function, and the export `unpack` of assembly/unpack.ts */
export function pack(bytes) {
  const module = binaryen.readBinary(bytes);
  try {
    module.setFeatures(FEATURES);
    const exports = Array.from({ length: module.getNumExports() }, (_, i) => binaryen.getExportInfo(module.getExportByIndex(i)));
    const { name: memory } = exports.find((each) => each.kind === binaryen.ExternalKinds.Memory);
    const { value: unpack } = exports.find((each) => each.name === "unpack");
    const { initial, max } = module.getMemoryInfo();
    const data = packed(segmentsOf(module));
    // Behind all that the module has laid out, at the beginning of its heap.
    const at = initial * PAGE;
    module.removeExport(memory);
    module.setMemory(initial + Math.ceil(data.length / PAGE), max ?? -1, memory, [{ offset: module.i32.const(at), data }]);
    module.removeExport("unpack");
    module.setStart(module.addFunction("begin", binaryen.none, binaryen.none, [], module.call(unpack, [module.i32.const(at)], binaryen.none)));
    if (!module.validate()) throw new Error("the packed module is not valid");
    return Buffer.from(module.emitBinary());
  } finally {
    module.dispose();
  }
}
