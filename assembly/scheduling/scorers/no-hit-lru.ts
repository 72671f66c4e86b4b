// `no-hit-lru-scorer` (scheduler §2.2): prompts that nobody holds go to the endpoint that was given such a prompt the longest ago. The order is in shared data, so all workers
// go by one; what was picked for prefill and what for decode is noted apart, and an endpoint's rank is its rank among the candidates.
import { APPROX_PREFIX_CACHE_PRODUCER, Build, unused } from "../../config/build";
import { MAX_SAFE, Node } from "../../config/node";
import { idHash } from "../../endpoints/bindings";
import { EndpointTable } from "../../endpoints/table";
import { CREATE, Space } from "../../store";
import { Pass, PassStage, Picks } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const DEFAULT_SIZE: i32 = 1024;
const RETRIES: i32 = 4;
/** Entry: an endpoint's id, with this bit for prefill. Ids are given one by one and never get there. */
const PREFILL: u32 = 0x80000000;

export class NoHitLruScorer extends Plugin {
  private key: u64 = 0;
  /** Stages whose candidates held nothing of the request at hand, as bits. */
  private cold: u32 = 0;
  private order: StaticArray<u32> = new StaticArray<u32>(0);

  constructor(private readonly size: i32) {
    super(PluginKind.Scorer | PluginKind.PreRequest);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["lruSize", "prefixMatchInfoProducerName", "prefixPluginType", "prefixPluginName"]);
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    unused(parameters.get("prefixPluginType"));
    unused(parameters.get("prefixPluginName"));
    const size = parameters.countOf("lruSize", 0, -MAX_SAFE);
    return new NoHitLruScorer(size > 0 ? size : DEFAULT_SIZE);
  }

  prepare(table: EndpointTable): void {
    const name = String.UTF8.encode(this.name);
    this.key = idHash(changetype<usize>(name), name.byteLength);
    // Two stages, and the two that come new.
    this.order = new StaticArray<u32>(2 * table.count + 2);
  }

  produce(pass: Pass): void {
    this.cold = 0;
  }

  score(pass: Pass): void {
    const n = pass.count;
    const raw = pass.raw;
    const candidates = pass.candidates;
    for (let i = 0; i < n; i++) {
      if (!unchecked(pass.table.matchedBlocks[candidates[i]])) continue;
      for (let k = 0; k < n; k++) unchecked((raw[k] = 0.5));
      return;
    }
    this.cold |= 1 << <u32>pass.stage;
    if (n == 1) {
      raw[0] = 1;
      return;
    }
    // Where each endpoint stands among the candidates, from 1 on.
    const places = pass.order;
    places.fill(0);
    for (let i = 0; i < n; i++) {
      unchecked((places[candidates[i]] = i + 1));
      unchecked((raw[i] = -1));
    }
    const mark = pass.stage == PassStage.Prefill ? PREFILL : 0;
    let used = 0;
    const store = pass.store;
    if (store.get(Space.ColdOrder, this.key)) {
      for (let k: u32 = 0, m = store.size >> 2; k < m; k++) {
        const entry = load<u32>(store.at + (k << 2));
        if ((entry & PREFILL) != mark) continue;
        const place = pass.fleet.place(entry & ~PREFILL);
        const at = place < 0 ? 0 : places[place];
        if (at && raw[at - 1] < 0) raw[at - 1] = used++;
      }
    }
    let never = 0;
    const last = <f64>(n - 1);
    for (let i = 0; i < n; i++) {
      const rank = raw[i] < 0 ? <f64>(never++) : <f64>(n - used) + raw[i];
      raw[i] = Math.max(0, 1 - rank / last);
    }
  }

  record(pass: Pass, decode: Picks, prefill: Picks, encode: Picks): void {
    const first = this.cold & (1 << <u32>PassStage.Decode) ? decode.first : -1;
    const second = this.cold & (1 << <u32>PassStage.Prefill) ? prefill.first : -1;
    const a = first < 0 ? 0 : pass.table.id[first];
    const b = second < 0 ? 0 : pass.table.id[second] | PREFILL;
    if (!a && !(b & ~PREFILL)) return;
    const order = this.order;
    const store = pass.store;
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      let n = 0;
      let cas: u32 = CREATE;
      if (store.get(Space.ColdOrder, this.key)) {
        cas = store.cas;
        for (let k: u32 = 0, m = store.size >> 2; k < m; k++) {
          const entry = load<u32>(store.at + (k << 2));
          // Endpoints that are gone leave room; each of the others stands there once per stage.
          if (entry != a && entry != b && n < order.length - 2 && pass.fleet.place(entry & ~PREFILL) >= 0) order[n++] = entry;
        }
      }
      if (a) order[n++] = a;
      if (b & ~PREFILL) order[n++] = b;
      const from = max(0, n - this.size);
      if (store.set(Space.ColdOrder, this.key, changetype<usize>(order) + (<usize>from << 2), (n - from) << 2, cas)) return;
    }
  }
}
