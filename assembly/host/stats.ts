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

/** A counter of Envoy's own; it goes on counting over VMs and modules. It cannot be removed while the proxy lives, so no name may be made from an open set. */
export class Counter extends Metric {
  constructor(name: string) {
    super(0, name);
  }
  add(n: u32): void {
    if (n) abi.proxy_increment_metric(this.id, n);
  }
  get value(): u64 {
    store<u64>(OUT, 0);
    abi.proxy_get_metric(this.id, OUT);
    return load<u64>(OUT);
  }
}

export class Gauge extends Metric {
  constructor(name: string) {
    super(1, name);
  }
  set(value: u64): void {
    abi.proxy_record_metric(this.id, value);
  }
}
