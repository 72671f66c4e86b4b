// What the pickers share: `maxNumOfEndpoints` (scheduler §2.3).
import { MAX_SAFE, Node } from "../../config/node";
import { Pass, Picks } from "../pass";
import { Plugin, PluginKind } from "../plugin";

export abstract class Picker extends Plugin {
  constructor(protected readonly max: i32) {
    super(PluginKind.Picker);
  }

  /** Reads the one parameter; 0 and less mean 1. */
  static readMax(parameters: Node): i32 {
    parameters.fields(["maxNumOfEndpoints"]);
    return max(parameters.countOf("maxNumOfEndpoints", 1, -MAX_SAFE), 1);
  }
}

/** The `count` best by `keys` (larger is better), ties at random, best first. `count` is at most `pass.count`. Uses `pass.order`. */
export function takeBest(pass: Pass, keys: StaticArray<f64>, count: i32, picks: Picks): void {
  const n = pass.count;
  if (count == 1) {
    let best = -Infinity;
    let ties = 0;
    for (let i = 0; i < n; i++) {
      const key = unchecked(keys[i]);
      if (key > best) {
        best = key;
        ties = 1;
      } else if (key == best) ties++;
    }
    let skip = pass.random.below(ties);
    for (let i = 0; i < n; i++) {
      if (unchecked(keys[i]) != best) continue;
      if (skip-- > 0) continue;
      picks.list[0] = pass.candidates[i];
      picks.count = 1;
      return;
    }
    picks.list[0] = pass.candidates[0]; // Only where no key is a number.
    picks.count = 1;
    return;
  }
  // A heap of the best positions so far, its worst on top; `order` breaks ties.
  const order = pass.order;
  const heap = picks.list;
  for (let i = 0; i < n; i++) unchecked((order[i] = pass.random.next()));
  let size = 0;
  for (let i = 0; i < n; i++) {
    if (size < count) {
      let child = size++;
      while (child > 0) {
        const parent = (child - 1) >> 1;
        if (!worse(keys, order, i, unchecked(heap[parent]))) break;
        unchecked((heap[child] = heap[parent]));
        child = parent;
      }
      unchecked((heap[child] = i));
    } else if (worse(keys, order, unchecked(heap[0]), i)) sink(heap, size, i, keys, order);
  }
  for (let end = size - 1; end > 0; end--) {
    const worst = unchecked(heap[0]);
    sink(heap, end, unchecked(heap[end]), keys, order);
    unchecked((heap[end] = worst));
  }
  for (let i = 0; i < size; i++) unchecked((heap[i] = pass.candidates[heap[i]]));
  picks.count = size;
}

@inline
function worse(keys: StaticArray<f64>, order: StaticArray<u32>, a: i32, b: i32): bool {
  const ka = unchecked(keys[a]);
  const kb = unchecked(keys[b]);
  return ka < kb || (ka == kb && unchecked(order[a]) < unchecked(order[b]));
}

/** Puts `value` in place of the top and restores the heap of `size`. */
function sink(heap: StaticArray<i32>, size: i32, value: i32, keys: StaticArray<f64>, order: StaticArray<u32>): void {
  let hole = 0;
  while (true) {
    let child = hole * 2 + 1;
    if (child >= size) break;
    if (child + 1 < size && worse(keys, order, unchecked(heap[child + 1]), unchecked(heap[child]))) child++;
    if (!worse(keys, order, unchecked(heap[child]), value)) break;
    unchecked((heap[hole] = heap[child]));
    hole = child;
  }
  unchecked((heap[hole] = value));
}

/** `count` of the candidates, each order as likely as any other. Moves the candidates. */
export function takeAny(pass: Pass, count: i32, picks: Picks): void {
  const candidates = pass.candidates;
  for (let i = 0; i < count; i++) {
    const from = i + pass.random.below(pass.count - i);
    const chosen = unchecked(candidates[from]);
    unchecked((candidates[from] = candidates[i]));
    unchecked((candidates[i] = chosen));
    unchecked((picks.list[i] = chosen));
  }
  picks.count = count;
}
