// `lora-affinity-scorer` (scheduler §2.2): where the request's adapter is, or could be loaded.
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { Adapter, readAdapters } from "../../endpoints/adapters";
import { EndpointTable } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

/** By {@link Adapter}. */
const SCORES: StaticArray<f64> = [0, 0, 0.6, 0.8, 1];

export class LoraAffinityScorer extends Plugin {
  private states: StaticArray<u8> = new StaticArray<u8>(0);

  constructor() {
    super(PluginKind.Scorer | PluginKind.PreRequest);
  }

  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new LoraAffinityScorer();
  }

  prepare(table: EndpointTable): void {
    this.states = new StaticArray<u8>(table.count);
  }

  produce(pass: Pass): void {
    readAdapters(pass.store, pass.fleet, pass.facts.model, this.states);
  }

  /** An endpoint of which nothing fresh is known gets the middle (scheduler L10). */
  score(pass: Pass): void {
    for (let i = 0; i < pass.count; i++) {
      const e = unchecked(pass.candidates[i]);
      const state = unchecked(this.states[e]);
      unchecked((pass.raw[i] = state == Adapter.Unknown && !pass.table.known[e] ? 0.5 : SCORES[state]));
    }
  }
}
