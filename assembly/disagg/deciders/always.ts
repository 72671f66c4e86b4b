// `always-disagg-pd-decider` and `always-disagg-multimodal-decider` (scheduler §3.8).
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Plugin } from "../../scheduling/plugin";
import { RequestFacts } from "../../scheduling/request";
import { EncodeReason, PrefillReason } from "../reasons";
import { EncodeDecider, PrefillDecider } from "./decider";

export class AlwaysPrefillDecider extends PrefillDecider {
  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new AlwaysPrefillDecider();
  }

  prefill(facts: RequestFacts, table: EndpointTable, decode: i32): PrefillReason {
    return PrefillReason.RunAlways;
  }
}

export class MultimodalDecider extends EncodeDecider {
  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new MultimodalDecider();
  }

  encode(facts: RequestFacts): EncodeReason {
    return facts.mmItems > 0 ? EncodeReason.RunMultimodal : EncodeReason.SkipTextOnly;
  }
}
