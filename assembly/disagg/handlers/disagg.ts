// `disagg-profile-handler` (scheduler §3.1), in its nested and its older flat form.
import { Build, lower } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin } from "../../scheduling/plugin";
import { nameOr, ProfileHandler, Reference } from "./handler";

const NESTED: StaticArray<string> = ["profiles", "deciders"];
const FLAT: StaticArray<string> = [
  "decodeProfile",
  "prefillProfile",
  "encodeProfile",
  "prefillDeciderPluginName",
  "encodeDeciderPluginName",
  "deciderPluginName",
];

export class DisaggProfileHandler extends ProfileHandler {
  static read(parameters: Node, build: Build): Plugin {
    const handler = new DisaggProfileHandler();
    const flat = hasAny(parameters, FLAT);
    if (flat && hasAny(parameters, NESTED)) {
      parameters.error("mixes the nested schema (profiles, deciders) with the flat one (decodeProfile, ..., deciderPluginName)");
    }
    if (flat) handler.readFlat(parameters);
    else handler.readNested(parameters);
    handler.prefillFirst = readStageOrder(parameters.get("stageOrder"));
    if (handler.prefillFirst && handler.prefillDecider.name.length > 0) {
      handler.prefillDecider.error("prefill decider is not supported in prefill-first stage order");
      handler.prefillDecider.name = "";
    }
    return handler;
  }

  private readNested(parameters: Node): void {
    parameters.fields(["stageOrder", "profiles", "deciders"]);
    const profiles = parameters.get("profiles");
    profiles.fields(["decode", "prefill", "encode"]);
    readProfile(this.decode, profiles.get("decode"), "decode");
    readProfile(this.prefill, profiles.get("prefill"), "prefill");
    readProfile(this.encode, profiles.get("encode"), "encode");
    const deciders = parameters.get("deciders");
    deciders.fields(["prefill", "encode"]);
    readProfile(this.prefillDecider, deciders.get("prefill"), "");
    readProfile(this.encodeDecider, deciders.get("encode"), "");
  }

  private readFlat(parameters: Node): void {
    parameters.fields([
      "stageOrder",
      "decodeProfile",
      "prefillProfile",
      "encodeProfile",
      "prefillDeciderPluginName",
      "encodeDeciderPluginName",
      "deciderPluginName",
      // Known, so that mixing the schemas is one error and not three.
      "profiles",
      "deciders",
    ]);
    parameters.warn("the flat parameters are deprecated: use profiles and deciders");
    readProfile(this.decode, parameters.get("decodeProfile"), "decode");
    readProfile(this.prefill, parameters.get("prefillProfile"), "prefill");
    readProfile(this.encode, parameters.get("encodeProfile"), "encode");
    // Of the two names of the prefill decider the longer one wins (scheduler DP-05).
    readProfile(this.prefillDecider, parameters.get("deciderPluginName"), "");
    const longNode = parameters.get("prefillDeciderPluginName");
    if (longNode.text("").length > 0) readProfile(this.prefillDecider, longNode, "");
    readProfile(this.encodeDecider, parameters.get("encodeDeciderPluginName"), "");
  }
}

function readProfile(out: Reference, node: Node, fallback: string): void {
  out.set(nameOr(node, fallback), node);
}

function hasAny(parameters: Node, names: StaticArray<string>): bool {
  for (let i = 0; i < names.length; i++) if (parameters.has(names[i])) return true;
  return false;
}

/** True for prefill-first. Case, `-` and `_` do not matter; "", `decode` and `prefill` are understood. */
function readStageOrder(node: Node): bool {
  const word = lower(node.text("")).replaceAll("-", "").replaceAll("_", "");
  if (word == "prefillfirst" || word == "prefill") return true;
  if (word != "" && word != "decodefirst" && word != "decode") node.error("must be decode-first or prefill-first" + node.got());
  return false;
}
