// prefix/: which endpoint holds how much of a prompt. Knows nothing of Envoy; its state is in a Store.
export { Fleet } from "../endpoints/fleet";
export { BLOCK_COST, fairCapacity } from "./capacity";
export { pruneFloors, readFloors } from "./floors";
export { Generations } from "./generations";
export { MediaIndex } from "./media";
export { PrefixIndex } from "./prefix-index";
export { IndexWalk } from "./walk";
