// `mm-embeddings-cache-producer` (scheduler §2.5, §4.5): how much encoders are taken to remember. The index itself is prefix/media.
import { Build } from "../../config/build";
import { MAX_SAFE, Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

/** Mebibytes of an encoder's cache, and of one item in it, as the reference has them. */
const DEFAULT_MIB: i32 = 4096;
const ITEM_MIB: i32 = 2;

/** Items that one encoder remembers without being told otherwise. */
export const DEFAULT_ITEMS: i32 = DEFAULT_MIB / ITEM_MIB;

export class MmEmbeddingsCacheProducer extends Plugin {
  constructor(
    /** Items that one encoder remembers. */
    public readonly items: i32,
  ) {
    super(PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["cacheSizeInMBPerServer"]);
    const mib = parameters.countOf("cacheSizeInMBPerServer", 0, -MAX_SAFE);
    return new MmEmbeddingsCacheProducer(max(1, (mib > 0 ? mib : DEFAULT_MIB) / ITEM_MIB));
  }
}
