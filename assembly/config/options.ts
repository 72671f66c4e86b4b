// FilterOptions (DESIGN, decision 7): the settings that are ours and have no place in an EndpointPickerConfig.
import { isLabelKey } from "../endpoints/labels";
import { LabelSelector } from "../endpoints/selector";
import { isPath } from "../scheduling/producers/metrics-data-source";
import { Node } from "./node";
import { readQuantity } from "./quantity";

const MIB: f64 = 1048576;

export class ScrapeOptions {
  intervalMs: i32 = 1000;
  timeoutMs: i32 = 800;
  /** Scrapes in flight at once, over all endpoints. */
  concurrency: i32 = 16;
}

/** Which connections speak TLS. */
export class TlsOptions {
  decode: bool = false;
  prefill: bool = false;
  encode: bool = false;
  scrape: bool = false;
  /** Check certificates; off, since the sidecar's own certificate is self-signed. */
  verify: bool = false;
}

/** What the reference keeps in an InferenceObjective object. */
export class Objective {
  constructor(
    public readonly name: string,
    /** Below 0: may be refused when the fleet is saturated. */
    public readonly priority: i32,
  ) {}
}

export class FilterOptions {
  /** A wanted stage without an endpoint fails the request (`fail`) instead of being left out (`local`). */
  failOnMissingStage: bool = false;
  /** Refuse bodies with duplicate keys and bodies that cannot be read. */
  strict: bool = false;
  /** Send the decision back in `x-crosspoint-decision`. */
  reasonHeader: bool = false;
  bodyLimitBytes: i32 = 64 * 1048576;
  /** Shared data that the prefix index may take. */
  indexBytes: i32 = 64 * 1048576;
  readonly scrape: ScrapeOptions = new ScrapeOptions();
  /** Paths that are served beside the built-in ones: exact, or with `/*` at the end everything below. */
  allowPaths: Array<string> = [];
  readonly tls: TlsOptions = new TlsOptions();
  /** Status when endpoints are known and none may decode: 503, or the reference's 429. */
  noDecodeStatus: i32 = 503;
  /** Plugins of alpha stability may be used: the reference's `--allow-experimental-plugins`. */
  allowExperimentalPlugins: bool = false;
  /** Who may be a KV source (scheduler L16); empty: everybody. */
  kvSourceSelector: LabelSelector = new LabelSelector();
  /** Names that `x-llm-d-inference-objective` may carry, with their priorities; another name has priority 0 (scheduler §6.1). */
  readonly objectives: Array<Objective> = [];
  /** Candidates are only those that `envoy.lb.subset_hint` names, where a filter ahead has set it (scheduler §6.1, 7). */
  subsetHint: bool = false;
  /** Label whose value the prefill and the decode endpoint of a request share, so that a rollout does not mix revisions; "": none. */
  revisionLabel: string = "";
}

export function readOptions(node: Node): FilterOptions {
  const options = new FilterOptions();
  const known = node.fields([
    "apiVersion",
    "kind",
    "onMissingStage",
    "strict",
    "reasonHeader",
    "bodyLimitBytes",
    "indexBytes",
    "scrape",
    "allowPaths",
    "tls",
    "noDecodeStatus",
    "allowExperimentalPlugins",
    "kvSourceSelector",
    "revisionLabel",
    "objectives",
    "subsetHint",
  ]);
  if (!known) return options;
  node.get("apiVersion").oneOf(["crosspoint/v1"]);
  node.get("kind").oneOf(["FilterOptions"]);
  options.failOnMissingStage = node.get("onMissingStage").oneOf(["local", "fail"]) == "fail";
  options.strict = node.boolOf("strict", false);
  options.reasonHeader = node.boolOf("reasonHeader", false);
  options.bodyLimitBytes = bytes(node.get("bodyLimitBytes"), options.bodyLimitBytes, 1024, 1024 * MIB);
  options.indexBytes = bytes(node.get("indexBytes"), options.indexBytes, MIB, 2048 * MIB - 1);

  const scrape = node.get("scrape");
  scrape.fields(["intervalMs", "timeoutMs", "concurrency"]);
  options.scrape.intervalMs = scrape.intOf("intervalMs", 1000, 50, 3600000);
  options.scrape.timeoutMs = scrape.intOf("timeoutMs", 800, 10, 60000);
  options.scrape.concurrency = scrape.intOf("concurrency", 16, 1, 1024);

  const paths = node.get("allowPaths");
  const items = paths.elements();
  for (let i = 0; i < items.length; i++) {
    const path = items[i].text("");
    if (items[i].isString && isAllowPath(path)) options.allowPaths.push(path);
    else if (items[i].isString || !items[i].present) items[i].error("must be a path like /v1/things, or /v1/things/* for all below it");
  }

  const tls = node.get("tls");
  tls.fields(["decode", "prefill", "encode", "scrape", "verify"]);
  options.tls.decode = tls.boolOf("decode", false);
  options.tls.prefill = tls.boolOf("prefill", false);
  options.tls.encode = tls.boolOf("encode", false);
  options.tls.scrape = tls.boolOf("scrape", false);
  options.tls.verify = tls.boolOf("verify", false);

  const statusNode = node.get("noDecodeStatus");
  options.noDecodeStatus = statusNode.int(503, 0, 999);
  if (options.noDecodeStatus != 503 && options.noDecodeStatus != 429) {
    statusNode.error("must be 503 or 429" + statusNode.got());
    options.noDecodeStatus = 503;
  }
  options.allowExperimentalPlugins = node.boolOf("allowExperimentalPlugins", false);
  options.kvSourceSelector = LabelSelector.read(node.get("kvSourceSelector"));
  readObjectives(node.get("objectives"), options.objectives);
  options.subsetHint = node.boolOf("subsetHint", false);
  const labelNode = node.get("revisionLabel");
  options.revisionLabel = labelNode.text("");
  if (labelNode.isString && !isLabelKey(options.revisionLabel)) labelNode.error("not a valid label key");
  return options;
}

/** `{name: priority}`. */
function readObjectives(node: Node, out: Array<Objective>): void {
  if (!node.object()) return;
  const members = node.members();
  for (let i = 0; i < members.length; i++) {
    const member = members[i];
    for (let k = 0; k < out.length; k++) if (out[k].name == member.name) member.error("given more than once");
    if (member.name.length == 0 || member.name.length > 256) member.error("the name must have 1 to 256 characters");
    if (!member.isNumber) member.error("must be a whole number" + member.got());
    else out.push(new Objective(member.name, member.int(0, -2147483648, 2147483647)));
  }
}

/** A number of bytes, or a quantity like `64Mi`. */
function bytes(node: Node, fallback: i32, min: f64, max: f64): i32 {
  if (!node.isString) return <i32>node.whole(<f64>fallback, min, max);
  const value = readQuantity(node, <f64>fallback);
  if (value >= min && value <= max) return <i32>value;
  node.error("must be between " + (<i64>min).toString() + " and " + (<i64>max).toString() + " bytes" + node.got());
  return fallback;
}

function isAllowPath(path: string): bool {
  if (path.length > 256 || !isPath(path) || path.includes("?") || path.includes("#")) return false;
  const star = path.indexOf("*");
  return star < 0 || (star == path.length - 1 && path.endsWith("/*"));
}
