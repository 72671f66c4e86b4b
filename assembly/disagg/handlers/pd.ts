// `pd-profile-handler` (scheduler §3.7), deprecated: decode, then prefill if its decider says so.
import { APPROX_PREFIX_CACHE_PRODUCER, Build, unused } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin } from "../../scheduling/plugin";
import { nameOr, ProfileHandler } from "./handler";

export class PdProfileHandler extends ProfileHandler {
  static read(parameters: Node, build: Build): Plugin {
    parameters.fields([
      "decodeProfile",
      "prefillProfile",
      "primaryPort",
      "deciderPluginName",
      "prefixMatchInfoProducerName",
      "prefixPluginType",
      "prefixPluginName",
    ]);
    const handler = new PdProfileHandler();
    const decodeNode = parameters.get("decodeProfile");
    handler.decode.set(nameOr(decodeNode, "decode"), decodeNode);
    const prefillNode = parameters.get("prefillProfile");
    handler.prefill.set(nameOr(prefillNode, "prefill"), prefillNode);
    handler.primaryPort = parameters.intOf("primaryPort", 0, 0, 65535);
    const deciderNode = parameters.get("deciderPluginName");
    const decider = deciderNode.text("prefix-based-pd-decider");
    if (decider.length == 0) deciderNode.error("decider plugin name is not defined");
    handler.prefillDecider.set(decider, deciderNode);
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    unused(parameters.get("prefixPluginType"));
    unused(parameters.get("prefixPluginName"));
    return handler;
  }
}
