// `queue-scorer` and `running-requests-size-scorer` (scheduler §2.2): the lowest of the candidates gets 1, the highest 0.
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable, KNOWN_RUNNING, KNOWN_WAITING } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

abstract class LowestFirstScorer extends Plugin {
  constructor(private readonly knownBit: u8) {
    super(PluginKind.Scorer);
  }

  abstract values(table: EndpointTable): StaticArray<f64>;

  /**
   * (max - v) / (max - min); 1 for all when they are equal. An unknown value takes no part and gets the middle (scheduler L10). What was sent since the scrape counts as
   * waiting or running by now, so that a burst does not go where the last scrape saw the shortest queue.
   */
  score(pass: Pass): void {
    const values = this.values(pass.table);
    const known = pass.table.known;
    const since = pass.table.sinceScrape;
    const raw = pass.raw;
    const n = pass.count;
    let min = Infinity;
    let max = -Infinity;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      if (!(unchecked(known[endpoint]) & this.knownBit)) continue;
      const value = unchecked(values[endpoint]) + <f64>unchecked(since[endpoint]);
      if (value < min) min = value;
      if (value > max) max = value;
    }
    const span = max - min;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      let score = 0.5;
      if (unchecked(known[endpoint]) & this.knownBit) score = span > 0 ? (max - unchecked(values[endpoint]) - <f64>unchecked(since[endpoint])) / span : 1;
      unchecked((raw[i] = score));
    }
  }
}

export class QueueScorer extends LowestFirstScorer {
  constructor() {
    super(KNOWN_WAITING);
  }

  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new QueueScorer();
  }

  values(table: EndpointTable): StaticArray<f64> {
    return table.waiting;
  }
}

export class RunningRequestsScorer extends LowestFirstScorer {
  constructor() {
    super(KNOWN_RUNNING);
  }

  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new RunningRequestsScorer();
  }

  values(table: EndpointTable): StaticArray<f64> {
    return table.running;
  }
}
