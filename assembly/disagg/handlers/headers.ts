// `disagg-headers-handler` and `prefill-header-handler`, deprecated: the profile handler itself sets the headers now.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../../scheduling/plugin";
import { nameOr, Reference } from "./handler";

export class HeadersHandler extends Plugin {
  /** Profiles whose picks the headers carry; checked against the profile handler's. */
  readonly prefill: Reference = new Reference();
  readonly encode: Reference = new Reference();

  constructor() {
    super(PluginKind.PreRequest);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["prefillProfile", "encodeProfile"]);
    const handler = new HeadersHandler();
    const prefillNode = parameters.get("prefillProfile");
    handler.prefill.set(nameOr(prefillNode, "prefill"), prefillNode);
    const encodeNode = parameters.get("encodeProfile");
    handler.encode.set(nameOr(encodeNode, "encode"), encodeNode);
    return handler;
  }
}
