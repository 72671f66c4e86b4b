// Where endpoints stand to each other: host, rack, zone, region, from their labels (scheduler §2.9, `topology-extractor`).
import { EndpointTable } from "../endpoints/table";

/** The levels from the closest to none. */
export const enum Affinity {
  Host,
  Rack,
  Zone,
  Region,
  None,
}

export const AFFINITY_WORDS: StaticArray<string> = ["host", "rack", "zone", "region"];

/** Labels that carry the levels, in the order of {@link AFFINITY_WORDS}. */
export class TopologyLabels {
  readonly keys: StaticArray<string> = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
  ];
}

export class Topology {
  /** Four numbers per endpoint, one per level; equal numbers stand for equal labels, 0 for a missing or empty one. */
  private places: StaticArray<i32> = new StaticArray<i32>(0);

  prepare(table: EndpointTable, labels: TopologyLabels): void {
    this.places = new StaticArray<i32>(table.count * 4);
    for (let level = 0; level < 4; level++) {
      const groups = table.groups(labels.keys[level]);
      for (let i = 0; i < table.count; i++) this.places[i * 4 + level] = groups[i];
    }
  }

  /** True when anything is known of where the endpoint stands. */
  knows(endpoint: i32): bool {
    const at = endpoint * 4;
    return (unchecked(this.places[at]) | unchecked(this.places[at + 1]) | unchecked(this.places[at + 2]) | unchecked(this.places[at + 3])) != 0;
  }

  /** The closest level that two endpoints share. */
  compare(a: i32, b: i32): Affinity {
    for (let level = 0; level < 4; level++) {
      const place = unchecked(this.places[a * 4 + level]);
      if (place != 0 && place == unchecked(this.places[b * 4 + level])) return level;
    }
    return Affinity.None;
  }
}
