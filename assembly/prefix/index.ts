// prefix/: which endpoint holds how much of a prompt. Knows nothing of Envoy; its state is in a Store.
export { Fleet } from "../endpoints/fleet";
export { BLOCK_COST, fairCapacity } from "./capacity";
export { Generations } from "./generations";
export { MediaIndex } from "./media";
export { PrefixIndex, pruneFloors, readFloors } from "./prefix-index";
export { IndexWalk } from "./walk";
