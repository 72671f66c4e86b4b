import * as abi from "@solo-io/proxy-runtime/assembly/imports";
import { Space, Store } from "../store";
import { OK, OUT, outPtr, outSize } from "./status";

/** The proxy's shared data, which all VMs of one `vm_id` see, on all workers and over successive modules. Values read stay in the arena until the callback ends. */
export class SharedStore extends Store {
  private key: usize = memory.data(16, 8);

  get(space: Space, key: u64): bool {
    store<u64>(this.key, key);
    store<u32>(this.key, <u32>space, 8);
    if (abi.proxy_get_shared_data(this.key, 12, OUT, OUT + 4, OUT + 8) != OK) return false;
    this.at = outPtr();
    this.size = outSize();
    this.cas = load<u32>(OUT, 8);
    return true;
  }

  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    store<u64>(this.key, key);
    store<u32>(this.key, <u32>space, 8);
    return abi.proxy_set_shared_data(this.key, 12, at, size, cas) == OK;
  }
}
