// `metrics-data-source` (scheduler §2.9): where an endpoint's metrics are. The scrape itself is endpoints/.
import { Build } from "../../config/build";
import { readDuration } from "../../config/quantity";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export class MetricsSourceParams {
  path: string = "/metrics";
  /** 0: the endpoint's own port. */
  port: i32 = 0;
}

export class MetricsDataSource extends Plugin {
  constructor(public readonly params: MetricsSourceParams) {
    super(PluginKind.DataSource);
  }

  static read(parameters: Node, build: Build): Plugin {
    const params = new MetricsSourceParams();
    parameters.fields(["scheme", "path", "port", "insecureSkipVerify", "caCertPath", "clientCertPath", "clientKeyPath", "interval"]);
    // TLS and the interval are Envoy's and FilterOptions' here; what a file says of them is read, so that it is known to be sound, and pointed out.
    const schemeNode = parameters.get("scheme");
    if (schemeNode.oneOf(["http", "https"]) == "https") schemeNode.warn("ignored: FilterOptions tls.scrape switches TLS on");
    ignored(parameters.get("insecureSkipVerify"), "FilterOptions tls.verify decides", true);
    ignored(parameters.get("caCertPath"), "FilterOptions tls decides", false);
    ignored(parameters.get("clientCertPath"), "FilterOptions tls decides", false);
    ignored(parameters.get("clientKeyPath"), "FilterOptions tls decides", false);
    const intervalNode = parameters.get("interval");
    if (intervalNode.present && intervalNode.text("x").length > 0) {
      readDuration(intervalNode, 0);
      intervalNode.warn("ignored: FilterOptions scrape.intervalMs decides");
    }
    const pathNode = parameters.get("path");
    params.path = pathNode.text(params.path);
    if (!isPath(params.path)) pathNode.error("must start with '/' and hold no spaces");
    params.port = parameters.intOf("port", 0, 1, 65535);
    return new MetricsDataSource(params);
  }
}

function ignored(node: Node, why: string, isBool: bool): void {
  if (!node.present) return;
  if (isBool) node.bool(false);
  else node.text("");
  node.warn("ignored: " + why);
}

/** Printable ASCII from a slash on. */
export function isPath(text: string): bool {
  if (!text.startsWith("/")) return false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c <= 0x20 || c >= 0x7f) return false;
  }
  return true;
}
