// The working memory of scheduling: made once per configuration push and used by every request of a VM, so that a request allocates nothing.
import { Fleet } from "../endpoints/fleet";
import { EndpointTable } from "../endpoints/table";
import { NoStore, Store } from "../store";
import { clear } from "../words";
import { Random } from "./random";
import { RequestFacts } from "./request";

/** What a picker chose: endpoint indices, best first. */
export class Picks {
  count: i32 = 0;
  readonly list: StaticArray<i32>;

  constructor(capacity: i32) {
    this.list = new StaticArray<i32>(capacity);
  }

  get first(): i32 {
    return this.count > 0 ? this.list[0] : -1;
  }

  /** Without the entries whose group is not `group`. */
  keepGroup(groups: StaticArray<i32>, group: i32): void {
    let kept = 0;
    for (let i = 0; i < this.count; i++) if (groups[this.list[i]] == group) this.list[kept++] = this.list[i];
    this.count = kept;
  }

  has(endpoint: i32): bool {
    for (let i = 0; i < this.count; i++) if (unchecked(this.list[i]) == endpoint) return true;
    return false;
  }
}

/** Stages in the numbers that {@link Pass.stage} has. */
export const enum PassStage {
  Decode,
  Prefill,
  Encode,
}

/** One run of one profile. Positions 0 to count - 1 of the arrays belong to the candidates that are left. */
export class Pass {
  facts: RequestFacts = new RequestFacts();
  /** The endpoint picked by the stage before, -1 when there is none (scheduler DG-29, DG-35). */
  peer: i32 = -1;
  stage: PassStage = PassStage.Decode;
  /** Where plugins keep what must outlive a request, and whose ids stand there. */
  store: Store = new NoStore();
  fleet: Fleet = new Fleet([]);

  count: i32 = 0;
  /** Endpoint index of each candidate, in table order until a picker moves them. */
  readonly candidates: StaticArray<i32>;
  /** Written by the scorer that runs. */
  readonly raw: StaticArray<f64>;
  /** Weighted sum over the scorers that have run. */
  readonly total: StaticArray<f64>;
  /** Free for a picker. */
  readonly order: StaticArray<u32>;
  /** Not 0: the endpoint is no candidate in this run, whatever the filters say. */
  readonly excluded: StaticArray<u8>;

  constructor(
    public readonly table: EndpointTable,
    public readonly random: Random,
  ) {
    this.candidates = new StaticArray<i32>(table.count);
    this.raw = new StaticArray<f64>(table.count);
    this.total = new StaticArray<f64>(table.count);
    this.order = new StaticArray<u32>(table.count);
    this.excluded = new StaticArray<u8>(table.count);
  }

  /** No endpoint is excluded. */
  includeAll(): void {
    clear(changetype<usize>(this.excluded), this.excluded.length);
  }
}
