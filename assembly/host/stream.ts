// The current stream: answers of our own, properties.
import * as abi from "@solo-io/proxy-runtime/assembly/imports";
import { Bytes } from "./bytes";
import { OK, OUT, outPtr, outSize } from "./status";

/** A property of the stream; the value stays in the arena. `path`: segments divided by NUL. */
export function getProperty(path: Bytes): bool {
  if (abi.proxy_get_property(path.at, path.size, OUT, OUT + 4) != OK) return false;
  propertyAt = outPtr();
  propertySize = outSize();
  return true;
}
export let propertyAt: usize = 0;
export let propertySize: u32 = 0;

/** Filter state `wasm.<name>`, readable in the access log. */
export function setProperty(name: Bytes, at: usize, size: u32): void {
  abi.proxy_set_property(name.at, name.size, at, size);
}

/** Makes the text that header-pair lists are sent as: count, sizes, then name NUL value NUL of each. */
export class HeaderPairs {
  at: usize = heap.alloc(4096);
  size: u32 = 0;
  private room: u32 = 4096;
  private count: u32 = 0;
  private sizes: StaticArray<u32> = new StaticArray<u32>(32);
  private starts: StaticArray<usize> = new StaticArray<usize>(32);

  clear(): void {
    this.count = 0;
  }

  dispose(): void {
    heap.free(this.at);
    this.at = 0;
    this.room = 0;
  }

  /** At most 16 pairs; the bytes must stay where they are until `finish`. */
  add(nameAt: usize, nameSize: u32, at: usize, size: u32): void {
    if (this.count == 16) return;
    const i = this.count << 1;
    this.sizes[i] = nameSize;
    this.sizes[i + 1] = size;
    this.starts[i] = nameAt;
    this.starts[i + 1] = at;
    this.count++;
  }

  finish(): void {
    let size: u32 = 4 + (this.count << 3);
    for (let i: u32 = 0; i < this.count << 1; i++) size += this.sizes[i] + 1;
    if (size > this.room) {
      this.room = size << 1;
      this.at = heap.realloc(this.at, this.room);
    }
    store<u32>(this.at, this.count);
    let p = this.at + 4 + (this.count << 3);
    for (let i: u32 = 0; i < this.count << 1; i++) {
      store<u32>(this.at + 4 + (i << 2), this.sizes[i]);
      memory.copy(p, this.starts[i], this.sizes[i]);
      p += this.sizes[i];
      store<u8>(p++, 0);
    }
    this.size = size;
  }
}

/** Answers the current request: status, headers, body. `details` shows in the access log. */
export function sendLocalResponse(status: u32, details: Bytes, headers: HeaderPairs, bodyAt: usize, bodySize: u32): void {
  headers.finish();
  abi.proxy_send_local_response(status, details.at, details.size, bodyAt, bodySize, headers.at, headers.size, 0xffffffff);
}

/** Calls an upstream cluster; the answer comes to the root context. Returns the call's token, or 0 when Envoy refused it. */
export function httpCall(cluster: Bytes, headers: HeaderPairs, timeoutMs: u32): u32 {
  headers.finish();
  store<u32>(OUT, 0);
  const empty = memory.data(8, 8);
  const status = abi.proxy_http_call(cluster.at, cluster.size, headers.at, headers.size, 0, 0, empty, 4, timeoutMs, OUT);
  return status == OK ? load<u32>(OUT) : 0;
}
