// What one VM has, whatever number of configurations it has seen: shared data, its book of requests in flight, the index, spare scanners.
import { InFlight } from "../endpoints/inflight";
import { nowMs, random64, settleCounters, SharedStore } from "../host";
import { PrefixIndex } from "../prefix";
import { RequestView, Scanner } from "../request";
import { RequestFacts } from "../scheduling/request";
import { CREATE, Space, Store } from "../store";
import { moduleNumber } from "../version";
import { Stats } from "./stats";

/** Bytes of shared data that one slot of the index may take. */
export const SLOT_BUDGET: i32 = 4096;
/** Scanners kept for the next bodies; more are open only while so many bodies are arriving. */
const SPARE_SCANNERS: i32 = 64;

export class Vm {
  readonly store: Store;
  readonly stats: Stats;
  readonly inflight: InFlight;
  readonly secret: u64;
  readonly view: RequestView = new RequestView();
  readonly facts: RequestFacts = new RequestFacts();
  private slots: u32 = 0;
  private prefixIndex: PrefixIndex | null = null;
  private spare: usize[] = [];
  /** Streams were created since the last tick. */
  served: bool = false;
  private settledMs: u64 = 0;

  constructor() {
    const store = new SharedStore();
    const inflight = new InFlight(store, moduleNumber());
    this.secret = sharedSecret(store);
    inflight.join(nowMs());
    this.store = store;
    this.inflight = inflight;
    this.stats = new Stats();
  }

  /** The index over `slots` slots. Another number is another index, and a cold one. */
  indexOf(slots: u32): PrefixIndex {
    if (slots != this.slots || !this.prefixIndex) {
      this.slots = slots;
      this.prefixIndex = new PrefixIndex(this.store, slots);
    }
    return this.prefixIndex!;
  }

  /** What has been counted reaches Envoy. */
  settle(now: u64): void {
    this.settledMs = now;
    settleCounters();
  }

  /** The same, when the last time is at least `ms` ago. */
  settleAfter(now: u64, ms: u64): void {
    if (now >= this.settledMs + ms) this.settle(now);
  }

  takeScanner(): Scanner {
    return this.spare.length ? changetype<Scanner>(this.spare.pop()) : Scanner.make();
  }

  giveScanner(s: Scanner): void {
    if (this.spare.length >= SPARE_SCANNERS) {
      s.dispose();
      return;
    }
    s.reader.shrink();
    this.spare.push(changetype<usize>(s));
  }
}

/** The secret that keys are made with: drawn by the first VM of the process, the same for all (DESIGN, decision 1). */
function sharedSecret(store: Store): u64 {
  const at = memory.data(8, 8);
  for (let attempt = 0; attempt < 4; attempt++) {
    // What is read back is what counts: another VM may have been first.
    if (store.get(Space.Secret, 0) && store.size == 8) return load<u64>(store.at);
    writeSecret(store, at);
  }
  return load<u64>(at);
}

function writeSecret(to: Store, at: usize): void {
  store<u64>(at, random64() | 1);
  to.set(Space.Secret, 0, at, 8, CREATE);
}

let instance: Vm | null = null;

/** This VM; made at the first configuration, because host calls have no context before it. */
export function vm(): Vm {
  if (!instance) instance = new Vm();
  return instance!;
}
