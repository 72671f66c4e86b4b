import * as abi from "@solo-io/proxy-runtime/assembly/imports";
import { OUT } from "./status";

class Metric {
  protected id: u32;
  constructor(type: i32, name: string) {
    const bytes = String.UTF8.encode(name);
    store<u32>(OUT, 0);
    abi.proxy_define_metric(type, changetype<usize>(bytes), bytes.byteLength, OUT);
    this.id = load<u32>(OUT);
  }
}

/** Counters that have something to tell Envoy. */
const unsettled: StaticArray<Counter | null> = new StaticArray<Counter | null>(256);
let unsettledCount: i32 = 0;

/**
 * A counter of Envoy's own; it goes on counting over VMs and modules. It cannot be removed while the proxy lives, so no name may be made from an open set. What is added
 * reaches Envoy with the next `settleCounters`: a call for each of half a dozen counters is a tenth of what a request costs.
 */
export class Counter extends Metric {
  private more: u32 = 0;

  constructor(name: string) {
    super(0, name);
  }

  add(n: u32): void {
    if (!n) return;
    if (!this.more && unsettledCount < unsettled.length) unchecked((unsettled[unsettledCount++] = this));
    this.more += n;
    // Nobody would come back to it.
    if (unsettledCount == unsettled.length) this.settle();
  }

  settle(): void {
    if (this.more) abi.proxy_increment_metric(this.id, this.more);
    this.more = 0;
  }

  get value(): u64 {
    this.settle();
    store<u64>(OUT, 0);
    abi.proxy_get_metric(this.id, OUT);
    return load<u64>(OUT);
  }
}

/** Tells Envoy what has been added to all counters of this VM. */
export function settleCounters(): void {
  for (let i = 0; i < unsettledCount; i++) {
    unchecked(unsettled[i])!.settle();
    unchecked((unsettled[i] = null));
  }
  unsettledCount = 0;
}

export class Gauge extends Metric {
  constructor(name: string) {
    super(1, name);
  }
  set(value: u64): void {
    abi.proxy_record_metric(this.id, value);
  }
}
