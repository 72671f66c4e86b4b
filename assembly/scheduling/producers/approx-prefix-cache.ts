// `approx-prefix-cache-producer` (scheduler §2.5, §4.2, §4.3): what the prefix index is made with. The index itself is prefix/.
import { Build, NOT_POSITIVE } from "../../config/build";
import { MAX_SAFE, Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export const PREFIX_FIELDS: StaticArray<string> = ["autoTune", "blockSizeTokens", "blockSize", "maxPrefixTokensToMatch", "maxPrefixBlocksToMatch", "lruCapacityPerServer"];

const DEFAULT_BLOCK_TOKENS: i32 = 16;
const DEFAULT_LRU_CAPACITY: i32 = 31250;
/** Longest block that a request's matched tokens can be counted in without leaving 32 bits. */
const MAX_BLOCK_TOKENS: i32 = 1 << 20;

export class PrefixParams {
  /** Take the block size, and the capacity, from what the engine reports. */
  autoTune: bool = true;
  /** Tokens per block, as given: there is no floor (the seed's 5 means 5). */
  blockTokens: i32 = DEFAULT_BLOCK_TOKENS;
  /** Tokens of a prompt that are hashed; 0: {@link maxPrefixBlocks} decides. */
  maxPrefixTokens: i32 = 131072;
  /** Blocks of a prompt that are hashed when {@link maxPrefixTokens} is 0; 0: no limit. */
  maxPrefixBlocks: i32 = 2048;
  /** Blocks that one endpoint is credited with at most. */
  lruCapacityPerServer: i32 = DEFAULT_LRU_CAPACITY;

  /** Most blocks of one prompt that are hashed, with blocks of `blockTokens` tokens; i32.MAX_VALUE without a limit (scheduler §4.2). */
  maxBlocks(blockTokens: i32): i32 {
    if (this.maxPrefixTokens > 0) return blockTokens > 0 ? this.maxPrefixTokens / blockTokens : 0;
    return this.maxPrefixBlocks > 0 ? this.maxPrefixBlocks : i32.MAX_VALUE;
  }

  equals(other: PrefixParams): bool {
    return (
      this.autoTune == other.autoTune &&
      this.blockTokens == other.blockTokens &&
      this.maxPrefixTokens == other.maxPrefixTokens &&
      this.maxPrefixBlocks == other.maxPrefixBlocks &&
      this.lruCapacityPerServer == other.lruCapacityPerServer
    );
  }

  /** Reads the members named in {@link PREFIX_FIELDS}; unknown ones are the caller's. */
  static read(parameters: Node): PrefixParams {
    const params = new PrefixParams();
    params.autoTune = parameters.boolOf("autoTune", true);

    const blockNode = parameters.get("blockSizeTokens");
    params.blockTokens = <i32>Math.max(blockNode.whole(DEFAULT_BLOCK_TOKENS, -MAX_SAFE, MAX_BLOCK_TOKENS), -1);
    const oldBlockNode = parameters.get("blockSize");
    if (oldBlockNode.present) {
      const old = <i32>Math.max(oldBlockNode.whole(0, -MAX_SAFE, MAX_BLOCK_TOKENS), -1);
      const used = params.blockTokens == DEFAULT_BLOCK_TOKENS;
      oldBlockNode.warn(used ? "deprecated: the name is blockSizeTokens" : "deprecated and ignored: blockSizeTokens is given");
      if (used) params.blockTokens = old;
    }
    if (params.blockTokens <= 0) {
      const node = blockNode.present || !oldBlockNode.present ? blockNode : oldBlockNode;
      if (!params.autoTune) node.error("must be greater than 0 when autoTune is false");
      else node.warn(NOT_POSITIVE);
      params.blockTokens = DEFAULT_BLOCK_TOKENS;
    }

    const tokensNode = parameters.get("maxPrefixTokensToMatch");
    params.maxPrefixTokens = tokensNode.count(131072, 0);
    const blocksNode = parameters.get("maxPrefixBlocksToMatch");
    params.maxPrefixBlocks = blocksNode.count(2048, 0);
    if (blocksNode.present) {
      if (!tokensNode.present) params.maxPrefixTokens = 0; // The only cap that is given is the one that is meant (scheduler §12.1).
      else if (params.maxPrefixTokens > 0) blocksNode.warn("deprecated and ignored: maxPrefixTokensToMatch is given");
    }
    if (params.maxPrefixTokens > 0 && params.maxPrefixTokens < params.blockTokens) {
      tokensNode.warn("less than one block of " + params.blockTokens.toString() + " tokens: nothing will ever match");
    }

    const lruNode = parameters.get("lruCapacityPerServer");
    params.lruCapacityPerServer = lruNode.count(DEFAULT_LRU_CAPACITY, -MAX_SAFE);
    if (params.lruCapacityPerServer <= 0) {
      lruNode.warn(NOT_POSITIVE);
      params.lruCapacityPerServer = DEFAULT_LRU_CAPACITY;
    }
    return params;
  }
}

export class ApproxPrefixCacheProducer extends Plugin {
  constructor(public readonly params: PrefixParams) {
    super(PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(PREFIX_FIELDS);
    return new ApproxPrefixCacheProducer(PrefixParams.read(parameters));
  }
}
