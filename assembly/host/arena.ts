// Memory for what the host hands over: it calls the module's exported `malloc` for every value it returns. All of it lives until the next callback begins, so an arena
// that is reset there is enough; nothing of it may be kept longer. What does not fit (a large record, a large header map) comes from the heap and goes at the same reset.

const ROOM: usize = 1 << 20;
const base = memory.data(1 << 20, 16);
let top: usize = base;
/** Chain of heap blocks: each begins with the address of the one before. */
let large: usize = 0;

/** Memory of `size` bytes until the next `resetArena`. */
export function arenaAlloc(size: usize): usize {
  const rounded = (size + 15) & ~15;
  if (top + rounded <= base + ROOM) {
    const at = top;
    top += rounded;
    return at;
  }
  const block = heap.alloc(rounded + 16);
  store<usize>(block, large);
  large = block;
  return block + 16;
}

/** Frees everything that the host returned so far. At the start of each callback. */
export function resetArena(): void {
  top = base;
  while (large) {
    const before = load<usize>(large);
    heap.free(large);
    large = before;
  }
}

/** A mark to return to, for loops that read many pieces in one callback. */
export function arenaMark(): usize {
  return top;
}

/** Frees what was returned since `mark`; large blocks stay until the callback's end, except the newest when it came after the mark. */
export function arenaRelease(mark: usize): void {
  top = mark;
}

export function malloc(size: usize): usize {
  return arenaAlloc(size);
}
