// What the stage machine asks before it runs the prefill or the encode profile.
import { EndpointTable } from "../../endpoints/table";
import { Plugin, PluginKind } from "../../scheduling/plugin";
import { RequestFacts } from "../../scheduling/request";
import { EncodeReason, PrefillReason } from "../reasons";

export abstract class PrefillDecider extends Plugin {
  constructor() {
    super(PluginKind.PrefillDecider);
  }

  /** `decode` is the decode pick. */
  abstract prefill(facts: RequestFacts, table: EndpointTable, decode: i32): PrefillReason;
}

export abstract class EncodeDecider extends Plugin {
  constructor() {
    super(PluginKind.EncodeDecider);
  }

  abstract encode(facts: RequestFacts): EncodeReason;
}
