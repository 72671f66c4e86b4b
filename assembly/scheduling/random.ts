// A small seedable generator (xorshift64*): the sandbox has no entropy of its own, so the host seeds it, and tests repeat.

export class Random {
  private state: u64 = 0x9e3779b97f4a7c15;

  constructor(seed: u64 = 1) {
    this.seed(seed);
  }

  /** Any seed will do: it is mixed, and zero, the one state that never leaves itself, is avoided. */
  seed(seed: u64): void {
    let z = seed + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    this.state = z == 0 ? 0x9e3779b97f4a7c15 : z;
  }

  next(): u32 {
    let x = this.state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    this.state = x;
    return <u32>((x * 0x2545f4914f6cdd1d) >> 32);
  }

  /** Uniform in [0, count); 0 for count <= 1. */
  below(count: i32): i32 {
    if (count <= 1) return 0;
    return <i32>((<u64>this.next() * <u64>count) >> 32);
  }

  /** Uniform in (0, 1), never either end. */
  unit(): f64 {
    return (<f64>this.next() + 0.5) / 4294967296.0;
  }
}
