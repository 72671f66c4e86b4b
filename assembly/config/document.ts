// The plugin document: what Envoy hands to the filter, and what the renderer has checked before (one validator for both).
//   {"revision": n, "picker": EndpointPickerConfig, "options": FilterOptions, "endpoints": [...]}
import { Scheduler, SchedulerSetup } from "../disagg/scheduler";
import { EndpointTable } from "../endpoints/table";
import { fairCapacity } from "../prefix/capacity";
import { PrefixParams } from "../scheduling/producers/approx-prefix-cache";
import { InflightParams } from "../scheduling/producers/inflight-load";
import { PluginKind } from "../scheduling/plugin";
import { TokenParams } from "../scheduling/producers/token";
import { SessionAffinity } from "../scheduling/session";
import { Build, WantedHeader } from "./build";
import { MetricsConfig } from "./data-layer";
import { Endpoints, readEndpoints } from "./endpoints";
import { JsonDoc } from "./json";
import { MAX_SAFE, Node } from "./node";
import { FilterOptions, readOptions } from "./options";
import { PickerConfig, readPicker } from "./picker";
import { Problems } from "./problems";

/** A configuration that is ready to run. */
export class LoadedConfig {
  constructor(
    /** Only grows: a VM never replaces a higher one. */
    public readonly revision: i64,
    public readonly options: FilterOptions,
    public readonly endpoints: EndpointTable,
    /** Where each endpoint stands in the document's list, which may hold entries that were left out. */
    public readonly sources: StaticArray<i32>,
    public readonly scheduler: Scheduler,
    public readonly prefix: PrefixParams,
    public readonly tokens: TokenParams,
    public readonly inflight: InflightParams,
    public readonly metrics: MetricsConfig,
    /** Parser types, in order (scheduler §2.7). */
    public readonly parsers: Array<string>,
    /** What `RequestFacts.headers` holds. */
    public readonly headers: Array<WantedHeader>,
    /** Session plugins whose token the answer carries. */
    public readonly echoes: Array<SessionAffinity>,
    /** Media items that one encoder is taken to remember; 0: nobody asks. */
    public readonly mediaItems: i32,
    /** A scorer asks for LoRA adapters. */
    public readonly adapters: bool,
  ) {}
}

export class LoadResult {
  readonly problems: Problems = new Problems();
  /** Null when there is any error. */
  config: LoadedConfig | null = null;
}

/** Reads a document. Never traps, whatever the text; problems come in the same order and words for the same text. */
export function loadDocument(text: string): LoadResult {
  const result = new LoadResult();
  const problems = result.problems;
  const doc = JsonDoc.parse(text);
  if (doc.error.length > 0) {
    problems.error("", "not valid JSON at character " + doc.errorAt.toString() + ": " + doc.error);
    return result;
  }
  const root = Node.root(doc, 0, "", problems);
  if (!root.fields(["revision", "picker", "options", "endpoints"])) {
    if (!root.present) root.error("must be an object");
    return result;
  }
  const revisionNode = root.get("revision");
  if (!revisionNode.present) revisionNode.error("is required");
  const revision = <i64>revisionNode.whole(0, 0, MAX_SAFE);
  const options = readOptions(root.get("options"));
  const build = new Build(problems);
  const picker = root.get("picker");
  // Paths of the picker's fields are those of its own document.
  const config = readPicker(picker.isObject || !picker.present ? picker.asRoot() : picker, build, options.allowExperimentalPlugins);
  const endpoints = readEndpoints(root.get("endpoints"), problems);
  if (problems.errors.length > 0) return result;
  const fair = fairCapacity(options.indexBytes, endpoints.table.count);
  if (fair < config.prefix.lruCapacityPerServer) {
    root.get("options").get("indexBytes").warn(
      "the index remembers " + fair.toString() + " blocks of each of " + endpoints.table.count.toString() + " endpoints, not the " + config.prefix.lruCapacityPerServer.toString() + " of lruCapacityPerServer",
    );
  }
  const setup = bind(config, options, endpoints);
  if (setup === null) return result;
  result.config = new LoadedConfig(
    revision,
    options,
    endpoints.table,
    endpoints.sources,
    new Scheduler(endpoints.table, setup),
    config.prefix,
    config.tokens,
    config.inflight,
    config.metrics,
    config.parsers,
    build.headers,
    config.echoes,
    config.mediaItems,
    config.adapters,
  );
  return result;
}

/** Binds plugins and profiles to the endpoints. Null only without a handler or decode profile, which is an error reported before. */
function bind(config: PickerConfig, options: FilterOptions, endpoints: Endpoints): SchedulerSetup | null {
  const table = endpoints.table;
  for (let i = 0; i < config.plugins.length; i++) config.plugins[i].prepare(table);
  for (let i = 0; i < config.profiles.length; i++) config.profiles[i].prepare(table);
  const handler = config.handler;
  if (handler === null || config.profiles.length == 0) return null;
  const decode = handler.single ? config.profiles[0] : config.profile(handler.decode.name);
  if (decode === null) return null;
  const setup = new SchedulerSetup(decode);
  if (handler.prefill.name.length > 0) setup.prefillProfile = config.profile(handler.prefill.name);
  if (handler.encode.name.length > 0) setup.encodeProfile = config.profile(handler.encode.name);
  setup.prefillDecider = config.prefillDecider;
  setup.encodeDecider = config.encodeDecider;
  setup.prefillFirst = handler.prefillFirst;
  setup.primaryPort = handler.primaryPort;
  setup.failOnMissingStage = options.failOnMissingStage;
  setup.saturationDetector = config.saturationDetector;
  setup.admitters = config.admitters;
  setup.p2pSource = config.p2pSource;
  for (let i = 0; i < config.plugins.length; i++) if (config.plugins[i].is(PluginKind.PreRequest)) setup.stateful.push(config.plugins[i]);
  if (options.revisionLabel.length > 0) setup.revisions = table.groups(options.revisionLabel);
  if (!options.kvSourceSelector.isEmpty) {
    const sources = new StaticArray<u8>(table.count);
    for (let i = 0; i < table.count; i++) sources[i] = options.kvSourceSelector.matches(table.labels[i]) ? 1 : 0;
    setup.kvSources = sources;
  }
  return setup;
}
