// The working memory of scheduling: made once per configuration push and used by every request of a VM, so that a request allocates nothing.
import { EndpointTable } from "../endpoints/table";
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

  has(endpoint: i32): bool {
    for (let i = 0; i < this.count; i++) if (unchecked(this.list[i]) == endpoint) return true;
    return false;
  }

  /** Moves the first `by` entries behind the others. */
  rotate(by: i32): void {
    reverse(this.list, 0, by);
    reverse(this.list, by, this.count);
    reverse(this.list, 0, this.count);
  }
}

function reverse(list: StaticArray<i32>, from: i32, to: i32): void {
  while (from < --to) {
    const held = list[from];
    list[from++] = list[to];
    list[to] = held;
  }
}

/** One run of one profile. Positions 0 to count - 1 of the arrays belong to the candidates that are left. */
export class Pass {
  facts: RequestFacts = new RequestFacts();
  /** The endpoint picked by the stage before, -1 when there is none (scheduler DG-29, DG-35). */
  peer: i32 = -1;

  count: i32 = 0;
  /** Endpoint index of each candidate, in table order until a picker moves them. */
  readonly candidates: StaticArray<i32>;
  /** Written by the scorer that runs. */
  readonly raw: StaticArray<f64>;
  /** Weighted sum over the scorers that have run. */
  readonly total: StaticArray<f64>;
  /** Free for a picker. */
  readonly order: StaticArray<u32>;
  /** 1: the endpoint is no candidate in this run, whatever the filters say. */
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
}
