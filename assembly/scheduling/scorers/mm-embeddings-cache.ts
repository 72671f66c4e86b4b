// `mm-embeddings-cache-scorer` (scheduler §2.2): the share of the request's media, weighed by their tokens, that an endpoint has encoded.
import { Build, MM_EMBEDDINGS_CACHE_PRODUCER } from "../../config/build";
import { Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

export class MmEmbeddingsCacheScorer extends Plugin {
  constructor() {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["producerName"]);
    build.producer(parameters, "producerName", MM_EMBEDDINGS_CACHE_PRODUCER);
    return new MmEmbeddingsCacheScorer();
  }

  score(pass: Pass): void {
    const facts = pass.facts;
    const items = facts.itemCount;
    let all: f64 = 0;
    for (let k = 0; k < items; k++) all += <f64>facts.itemTokens(k);
    for (let i = 0; i < pass.count; i++) {
      const held = unchecked(pass.table.heldItems[pass.candidates[i]]);
      let seen: f64 = 0;
      for (let k = 0; k < items; k++) if ((held >> k) & 1) seen += <f64>facts.itemTokens(k);
      unchecked((pass.raw[i] = all > 0 ? seen / all : 0));
    }
  }
}
