// EndpointPickerConfig (scheduler §1): what the document says, every rule of §1.3 checked, every default of §1.4 filled in.
import { HeadersHandler } from "../disagg/handlers/headers";
import { ProfileHandler } from "../disagg/handlers/handler";
import { DataParallelProfileHandler } from "../disagg/handlers/data-parallel";
import { SingleProfileHandler } from "../disagg/handlers/single";
import { EncodeDecider, PrefillDecider } from "../disagg/deciders/decider";
import { MaxScorePicker } from "../scheduling/pickers/max-score";
import { UtilizationDetector } from "../scheduling/detectors/utilization";
import { Plugin, PluginKind } from "../scheduling/plugin";
import { ApproxPrefixCacheProducer, PrefixParams } from "../scheduling/producers/approx-prefix-cache";
import { InflightLoadProducer, InflightParams } from "../scheduling/producers/inflight-load";
import { DEFAULT_ITEMS, MmEmbeddingsCacheProducer } from "../scheduling/producers/mm-embeddings-cache";
import { P2pSourceProducer } from "../scheduling/producers/p2p-source";
import { SessionIdProducer } from "../scheduling/producers/session-id";
import { TokenParams, TokenProducer } from "../scheduling/producers/token";
import { Profile } from "../scheduling/profile";
import { PassStage } from "../scheduling/pass";
import { LoraAffinityScorer } from "../scheduling/scorers/lora-affinity";
import { MmEmbeddingsCacheScorer } from "../scheduling/scorers/mm-embeddings-cache";
import { PrefixCacheScorer } from "../scheduling/scorers/prefix-cache";
import { SessionAffinity } from "../scheduling/session";
import { APPROX_PREFIX_CACHE_PRODUCER, Build, NOT_IN_LINE } from "./build";
import { MetricsConfig, readDataLayer } from "./data-layer";
import { FlowControl, readFlowControl } from "./flow-control";
import { JsonDoc } from "./json";
import { HUGE, Node } from "./node";
import { Problems } from "./problems";
import { createPlugin, isAlpha, isParser, replacementOf, unsupportedReason } from "./registry";

/** The configuration of the reference when it is given none (scheduler §1.1). */
const BUILT_IN: string =
  '{"plugins":[{"type":"queue-scorer"},{"type":"kv-cache-utilization-scorer"},{"type":"prefix-cache-scorer"},{"type":"metrics-data-source"},{"type":"core-metrics-extractor"}],' +
  '"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":2},{"pluginRef":"kv-cache-utilization-scorer","weight":2},{"pluginRef":"prefix-cache-scorer","weight":3}]}],' +
  '"dataLayer":{"sources":[{"pluginRef":"metrics-data-source","extractors":[{"pluginRef":"core-metrics-extractor"}]}]}}';

const HEADERS_FOLLOW: string = "ignored: the headers follow the profile handler";

const DEFAULT_PARSERS: StaticArray<string> = ["openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"];

/** One entry of `plugins`. */
export class Instance {
  constructor(
    public readonly name: string,
    public readonly type: string,
    /** Null when the type is missing, unknown or not supported: its name may be referred to all the same. */
    public readonly plugin: Plugin | null,
    public readonly node: Node,
  ) {}
}

export class PickerConfig {
  constructor(public readonly problems: Problems) {}

  readonly instances: Array<Instance> = [];
  /** All plugins that were made, the injected ones last. */
  readonly plugins: Array<Plugin> = [];
  readonly profiles: Array<Profile> = [];
  handler: ProfileHandler | null = null;
  prefillDecider: PrefillDecider | null = null;
  encodeDecider: EncodeDecider | null = null;
  prefix: PrefixParams = new PrefixParams();
  tokens: TokenParams = new TokenParams();
  inflight: InflightParams = new InflightParams();
  p2pSource: P2pSourceProducer | null = null;
  /** Media items that one encoder is taken to remember; 0: nobody asks. */
  mediaItems: i32 = 0;
  /** A scorer asks for LoRA adapters. */
  adapters: bool = false;
  /** Session plugins whose token the answer carries. */
  readonly echoes: Array<SessionAffinity> = [];
  saturationDetector: Plugin | null = null;
  readonly admitters: Array<Plugin> = [];
  /** Types of the parsers, in order. */
  readonly parsers: Array<string> = [];
  flowControl: FlowControl = new FlowControl();
  metrics: MetricsConfig = new MetricsConfig();

  find(name: string): Instance | null {
    for (let i = 0; i < this.instances.length; i++) if (this.instances[i].name == name) return this.instances[i];
    return null;
  }

  profile(name: string): Profile | null {
    for (let i = 0; i < this.profiles.length; i++) if (this.profiles[i].name == name) return this.profiles[i];
    return null;
  }
}

/** Reads the document; an absent one is the built-in configuration. Errors go to `build.problems`; the result is of use only without any. */
export function readPicker(given: Node, build: Build, allowAlpha: bool): PickerConfig {
  const config = new PickerConfig(build.problems);
  let node = given;
  if (!given.present) node = Node.root(JsonDoc.parse(BUILT_IN), 0, "", build.problems);
  const known = node.fields([
    "apiVersion",
    "kind",
    "featureGates",
    "plugins",
    "schedulingProfiles",
    "dataLayer",
    "flowControl",
    "requestHandler",
    "saturationDetector",
    "parser",
  ]);
  if (!known) return config;
  if (given.present) readEnvelope(node);
  readFeatureGates(node.get("featureGates"));
  readPlugins(node.get("plugins"), config, build, allowAlpha);
  readProfiles(node.get("schedulingProfiles"), config);
  chooseHandler(node, config);
  addPickers(config);
  checkRoutes(config);
  readProducers(config, build);
  readSessions(config);
  config.metrics = readDataLayer(node.get("dataLayer"), config);
  readParsers(node, config);
  const detectorNode = readFlowControl(node.get("flowControl"), config.flowControl);
  readDetector(node, detectorNode, config);
  return config;
}

function readEnvelope(node: Node): void {
  const versionNode = node.get("apiVersion");
  const version = versionNode.text("");
  if (version == "inference.networking.x-k8s.io/v1alpha1") versionNode.warn("deprecated: the group is llm-d.ai/v1alpha1");
  else if (!versionNode.present) versionNode.warn("missing, taken as llm-d.ai/v1alpha1");
  else if (versionNode.isString && version != "llm-d.ai/v1alpha1") versionNode.error("must be llm-d.ai/v1alpha1" + versionNode.got());
  const kindNode = node.get("kind");
  if (!kindNode.present) kindNode.warn("missing, taken as EndpointPickerConfig");
  else if (kindNode.text("EndpointPickerConfig") != "EndpointPickerConfig") kindNode.error("must be EndpointPickerConfig" + kindNode.got());
}

/** `name` or `name=true|false`. */
function readFeatureGates(node: Node): void {
  const items = node.elements();
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    if (!item.isString) {
      item.error("must be a string");
      continue;
    }
    const text = item.text("");
    const equals = text.indexOf("=");
    const name = equals < 0 ? text : text.substring(0, equals);
    const value = equals < 0 ? "true" : text.substring(equals + 1);
    if (name != "flowControl" && name != "haPopulateNonLeaderDatastore") {
      item.error("feature gate '" + name + "' is unknown or unregistered");
    } else if (value != "true" && value != "false") {
      item.error(value + " is not a valid value for the feature gate " + name);
    } else if (name == "flowControl" && value == "true") {
      item.error(NOT_IN_LINE + "requests are not queued inside Envoy");
    } else if (name != "flowControl") item.warn("ignored: there is no leader election in Envoy");
  }
}

function readPlugins(node: Node, config: PickerConfig, build: Build, allowAlpha: bool): void {
  const items = node.elements();
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    if (!item.fields(["type", "name", "parameters"])) continue;
    const typeNode = item.get("type");
    const type = typeNode.text("");
    const nameNode = item.get("name");
    let name = nameNode.text("");
    if (name.length == 0) name = type;
    if (name.length > 0 && config.find(name) !== null) (nameNode.present ? nameNode : typeNode).error("duplicate plugin name '" + name + "'");
    const plugin = makePlugin(typeNode, type, name, item.get("parameters"), build, allowAlpha);
    if (plugin !== null) {
      plugin.name = name;
      plugin.type = type;
      plugin.path = item.path();
      config.plugins.push(plugin);
    }
    config.instances.push(new Instance(name, type, plugin, item));
  }
}

function makePlugin(typeNode: Node, typeName: string, name: string, parameters: Node, build: Build, allowAlpha: bool): Plugin | null {
  if (typeName.length == 0) {
    if (typeNode.isString || !typeNode.present) typeNode.error("plugin '" + name + "' is missing a type");
    return null;
  }
  const plugin = createPlugin(typeName, parameters, build);
  if (plugin === null) {
    const reason = unsupportedReason(typeName);
    if (reason.length > 0) typeNode.error(NOT_IN_LINE + reason);
    else typeNode.error("plugin type '" + typeName + "' is not registered");
    return null;
  }
  if (isAlpha(typeName) && !allowAlpha) {
    typeNode.error(
      "plugin '" + name + "' (type: '" + typeName + "') has Alpha stability level, but command line flag --allow-experimental-plugins is not set (FilterOptions: allowExperimentalPlugins)",
    );
  }
  const replacement = replacementOf(typeName);
  if (replacement.length > 0) typeNode.warn("deprecated: use " + replacement);
  return plugin;
}

function readProfiles(node: Node, config: PickerConfig): void {
  const items = node.elements();
  for (let i = 0; i < items.length; i++) readProfile(items[i], i, config);
  if (items.length > 0) return;
  // Without profiles, one with every instance that has a place in one, in the order of the file (scheduler L12).
  const profile = new Profile("default");
  config.profiles.push(profile);
  for (let i = 0; i < config.plugins.length; i++) {
    const plugin = config.plugins[i];
    if (plugin.is(PluginKind.Filter) || plugin.is(PluginKind.Scorer) || plugin.is(PluginKind.Picker)) addToProfile(profile, plugin, 1, node);
  }
}

function readProfile(node: Node, index: i32, config: PickerConfig): void {
  if (!node.fields(["name", "plugins"])) return;
  const where = "schedulingProfiles[" + index.toString() + "]";
  const nameNode = node.get("name");
  const name = nameNode.text("");
  if (name.length == 0) {
    if (nameNode.isString || !nameNode.present) nameNode.error(where + " is missing a name");
  } else if (config.profile(name) !== null) nameNode.error(where + " has duplicate name '" + name + "'");
  const profile = new Profile(name);
  config.profiles.push(profile);
  const plugins = node.get("plugins");
  const items = plugins.elements();
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    if (!item.fields(["pluginRef", "weight"])) continue;
    const weight = item.floatOf("weight", 1, -HUGE, HUGE);
    const refNode = item.get("pluginRef");
    const ref = refNode.text("");
    if (ref.length == 0) {
      if (refNode.isString || !refNode.present) refNode.error("schedulingProfiles[" + name + "].plugins[" + i.toString() + "] is missing a 'pluginRef'");
      continue;
    }
    const instance = config.find(ref);
    if (instance === null) {
      refNode.error("schedulingProfiles[" + name + "] references undefined plugin '" + ref + "'");
      continue;
    }
    const plugin = instance.plugin;
    if (plugin !== null) addToProfile(profile, plugin, weight, refNode);
  }
}

function addToProfile(profile: Profile, plugin: Plugin, weight: f64, node: Node): void {
  if (!plugin.is(PluginKind.Filter) && !plugin.is(PluginKind.Scorer) && !plugin.is(PluginKind.Picker)) {
    node.warn("'" + plugin.name + "' has no effect in a profile");
  }
  const other = profile.add(plugin, weight);
  if (other !== null) node.error("failed to set '" + plugin.name + "' as picker, already have a registered picker plugin '" + other.name + "'");
}

/** The one profile handler: declared, or `single-profile-handler` for a single profile. */
function chooseHandler(node: Node, config: PickerConfig): void {
  let handler: ProfileHandler | null = null;
  let undecided = false;
  for (let i = 0; i < config.instances.length; i++) {
    const instance = config.instances[i];
    const plugin = instance.plugin;
    if (plugin === null) undecided = true;
    else if (plugin.is(PluginKind.ProfileHandler)) {
      if (handler !== null) {
        instance.node.get("type").error("multiple profile handlers found ('" + handler.name + "', '" + instance.name + "'); only one is allowed");
      } else handler = <ProfileHandler>plugin;
    }
  }
  if (handler === null) {
    if (config.profiles.length == 1) {
      const single = new SingleProfileHandler();
      single.single = true;
      single.name = single.type = "single-profile-handler";
      config.plugins.push(single);
      handler = single;
    } else if (!undecided) node.get("plugins").error("no profile handler configured");
  }
  if (handler !== null && handler.single && config.profiles.length > 1) {
    node
      .get("schedulingProfiles")
      .error(
        handler instanceof DataParallelProfileHandler
          ? "data-parallel-profile-handler is for a single scheduling profile"
          : "SingleProfileHandler cannot support multiple scheduling profiles",
      );
  }
  config.handler = handler;
}

/** Gives every profile a picker: the first `max-score-picker` declared, else the first picker, else a new one (scheduler L12: the same one each time). */
function addPickers(config: PickerConfig): void {
  let picker: Plugin | null = null;
  for (let i = 0; i < config.plugins.length; i++) {
    const plugin = config.plugins[i];
    if (!plugin.is(PluginKind.Picker)) continue;
    if (picker === null || (!(picker instanceof MaxScorePicker) && plugin instanceof MaxScorePicker)) picker = plugin;
  }
  if (picker === null) {
    picker = new MaxScorePicker(1);
    picker.name = picker.type = "max-score-picker";
    config.plugins.push(picker);
  }
  for (let i = 0; i < config.profiles.length; i++) {
    if (!config.profiles[i].hasPicker) config.profiles[i].add(picker, 1);
  }
}

/** Checks what the handler's parameters name, now that everything has been read. */
function checkRoutes(config: PickerConfig): void {
  const handler = config.handler;
  if (handler === null) return;
  if (!handler.single && config.profile(handler.decode.name) === null) {
    handler.decode.error("schedulingProfiles has no profile '" + handler.decode.name + "': nothing could be decoded");
  }
  config.prefillDecider = findPrefillDecider(handler, config);
  config.encodeDecider = findEncodeDecider(handler, config);
  for (let i = 0; i < config.plugins.length; i++) {
    const plugin = config.plugins[i];
    if (!(plugin instanceof HeadersHandler)) continue;
    const headers = <HeadersHandler>plugin;
    if (handler.prefill.name.length > 0 && headers.prefill.name != handler.prefill.name) headers.prefill.warn(HEADERS_FOLLOW);
    if (handler.encode.name.length > 0 && headers.encode.name != handler.encode.name) headers.encode.warn(HEADERS_FOLLOW);
  }
}

function findPrefillDecider(handler: ProfileHandler, config: PickerConfig): PrefillDecider | null {
  const reference = handler.prefillDecider;
  if (reference.name.length == 0) return null;
  const instance = config.find(reference.name);
  if (instance === null) {
    reference.error(notFound("prefill", reference.name));
    return null;
  }
  if (config.profile(handler.prefill.name) === null) reference.warn(neverRuns("prefill", handler.prefill.name));
  const plugin = instance.plugin;
  if (plugin === null) return null;
  if (plugin instanceof PrefillDecider) return <PrefillDecider>plugin;
  reference.error("plugin " + reference.name + " does not implement prefillDeciderPlugin");
  return null;
}

function findEncodeDecider(handler: ProfileHandler, config: PickerConfig): EncodeDecider | null {
  const reference = handler.encodeDecider;
  if (reference.name.length == 0) return null;
  const instance = config.find(reference.name);
  if (instance === null) {
    reference.error(notFound("encode", reference.name));
    return null;
  }
  if (config.profile(handler.encode.name) === null) reference.warn(neverRuns("encode", handler.encode.name));
  const plugin = instance.plugin;
  if (plugin === null) return null;
  if (plugin instanceof EncodeDecider) return <EncodeDecider>plugin;
  reference.error("plugin " + reference.name + " does not implement encodeDeciderPlugin");
  return null;
}

function notFound(stage: string, name: string): string {
  return "deciders." + stage + " plugin not found: " + name + " (a plugin has a dependency on the unregistered plugin " + name + ")";
}

function neverRuns(stage: string, profile: string): string {
  return "the " + stage + " stage never runs: schedulingProfiles has no profile '" + profile + "'";
}

/** The data producers: one of each, made with defaults where none is declared (scheduler §1.4, 8). */
function readProducers(config: PickerConfig, build: Build): void {
  let prefix: Instance | null = null;
  let tokens: Instance | null = null;
  let inflight: Instance | null = null;
  let media: Instance | null = null;
  // Encoders are picked by what they have encoded, whoever asks for it (scheduler L8).
  if (config.encodeDecider !== null) config.mediaItems = DEFAULT_ITEMS;
  for (let i = 0; i < config.instances.length; i++) {
    const instance = config.instances[i];
    const plugin = instance.plugin;
    if (plugin === null) continue;
    if (plugin instanceof ApproxPrefixCacheProducer) {
      if (prefix === null) config.prefix = (<ApproxPrefixCacheProducer>plugin).params;
      prefix = only(prefix, instance);
    } else if (plugin instanceof TokenProducer) {
      if (tokens === null) config.tokens = (<TokenProducer>plugin).params;
      tokens = only(tokens, instance);
    } else if (plugin instanceof InflightLoadProducer) {
      if (inflight === null) config.inflight = (<InflightLoadProducer>plugin).params;
      inflight = only(inflight, instance);
    } else if (plugin instanceof MmEmbeddingsCacheProducer) {
      config.mediaItems = (<MmEmbeddingsCacheProducer>plugin).items;
      media = only(media, instance);
    } else if (plugin instanceof MmEmbeddingsCacheScorer) {
      if (config.mediaItems == 0) config.mediaItems = DEFAULT_ITEMS;
    } else if (plugin instanceof LoraAffinityScorer) config.adapters = true;
    else if (plugin instanceof P2pSourceProducer) {
      if (config.p2pSource !== null) instance.node.get("type").error("a second p2p-source-producer: there is one header");
      config.p2pSource = <P2pSourceProducer>plugin;
    } else if (plugin.is(PluginKind.Admitter)) config.admitters.push(plugin);
  }
  readScorerIndex(config, prefix);
  for (let i = 0; i < build.producerReferences.length; i++) {
    const reference = build.producerReferences[i];
    const instance = config.find(reference.name);
    if (instance === null) {
      if (reference.name != reference.type) reference.node.error("references undefined plugin '" + reference.name + "', and there is no default producer of that name");
    } else if (instance.plugin !== null && instance.type != reference.type) {
      reference.node.error("plugin '" + reference.name + "' is not of type " + reference.type);
    }
  }
}

function only(first: Instance | null, second: Instance): Instance {
  if (first === null) return second;
  second.node.get("type").error(NOT_IN_LINE + "a second " + second.type + " beside '" + first.name + "'");
  return first;
}

/** Binds session plugins to what their parameters name: other instances, and the handler's profiles. */
function readSessions(config: PickerConfig): void {
  const handler = config.handler;
  for (let i = 0; i < config.plugins.length; i++) {
    const plugin = config.plugins[i];
    if (!(plugin instanceof SessionAffinity)) continue;
    const session = <SessionAffinity>plugin;
    if (session.header.length > 0) config.echoes.push(session);
    for (let k = 0; k < session.sources.length; k++) {
      const source = session.sources[k];
      if (source.header >= 0) continue;
      source.header = 0;
      const instance = config.find(source.attribute);
      if (instance === null || (instance.plugin !== null && !(instance.plugin instanceof SessionIdProducer))) {
        source.node.error("'" + source.attribute + "' is no plugin of type session-id-producer");
      } else if (instance.plugin !== null) source.header = (<SessionIdProducer>instance.plugin).header;
    }
    const name = session.profile.text("");
    if (name.length == 0 || handler === null) continue;
    const known = config.profile(name) !== null;
    if (known && name == handler.prefill.name) session.stage = PassStage.Prefill;
    else if (known && name == handler.encode.name) session.stage = PassStage.Encode;
    else if (!known || (!handler.single && name != handler.decode.name)) session.profile.error("'" + name + "' is no profile that the profile handler runs");
  }
}

/** The seed's form: the index's parameters under `prefix-cache-scorer`. They count when no producer is declared, and all scorers must agree. */
function readScorerIndex(config: PickerConfig, producer: Instance | null): void {
  let first: PrefixCacheScorer | null = null;
  for (let i = 0; i < config.plugins.length; i++) {
    const plugin = config.plugins[i];
    if (!(plugin instanceof PrefixCacheScorer)) continue;
    const scorer = <PrefixCacheScorer>plugin;
    const index = scorer.index;
    if (index === null) continue;
    if (producer !== null) {
      scorer.indexNode.error("the prefix index's parameters are given here and by " + APPROX_PREFIX_CACHE_PRODUCER + " '" + producer.name + "': keep one place");
    } else if (first === null) {
      first = scorer;
      config.prefix = index;
    } else if (!index.equals(config.prefix)) {
      scorer.indexNode.error("the prefix index's parameters differ from those of '" + first.name + "': there is one index");
    }
  }
}

function readParsers(node: Node, config: PickerConfig): void {
  const handler = node.get("requestHandler");
  handler.fields(["parsers"]);
  const list = handler.get("parsers");
  const old = node.get("parser");
  if (old.present) old.warn("deprecated: use requestHandler.parsers" + (list.length > 0 ? ", which is given and counts" : ""));
  if (old.fields(["pluginRef"]) && list.length == 0) readParser(old.get("pluginRef"), config);
  const items = list.elements();
  for (let i = 0; i < items.length; i++) {
    if (items[i].fields(["pluginRef"])) readParser(items[i].get("pluginRef"), config);
  }
  if (config.parsers.length == 0) {
    for (let i = 0; i < DEFAULT_PARSERS.length; i++) config.parsers.push(DEFAULT_PARSERS[i]);
  }
}

/** A parser that is not declared is made when the reference is a parser's type. */
function readParser(node: Node, config: PickerConfig): void {
  const name = node.text("");
  if (node.present && !node.isString) return;
  const instance = config.find(name);
  let type = name;
  if (instance !== null) {
    const plugin = instance.plugin;
    if (plugin === null) return;
    if (!plugin.is(PluginKind.Parser)) {
      node.error("plugin '" + name + "' is not a parser plugin");
      return;
    }
    type = instance.type;
  } else if (!isParser(name)) {
    const reason = unsupportedReason(name);
    node.error(reason.length > 0 ? NOT_IN_LINE + reason : "parser references undefined plugin '" + name + "'");
    return;
  }
  // The reference skips a second parser of the same type, and whatever stands behind a fallback, which takes every path (scheduler RQ-05).
  if (config.parsers.includes("passthrough-parser")) node.warn("ignored: it stands behind passthrough-parser, which takes every path");
  else if (!config.parsers.includes(type)) config.parsers.push(type);
}

/** The detector that decides on sheddable requests; `utilization-detector` where none is named. */
function readDetector(node: Node, current: Node, config: PickerConfig): void {
  const old = node.get("saturationDetector");
  if (old.present) old.warn("deprecated: use flowControl.saturationDetector" + (current.present ? ", which is given and counts" : ""));
  old.fields(["pluginRef"]);
  current.fields(["pluginRef"]);
  const refNode = (current.present ? current : old).get("pluginRef");
  let name = "utilization-detector";
  if (refNode.present) {
    if (!refNode.isString) {
      refNode.text("");
      return;
    }
    name = refNode.text("");
    if (name.length == 0) {
      refNode.error("saturation detector plugin reference is empty");
      return;
    }
  }
  const instance = config.find(name);
  if (instance === null) {
    if (name != "utilization-detector") {
      refNode.error("saturation detector references undefined plugin '" + name + "'");
      return;
    }
    const detector = new UtilizationDetector(5, 0.8, 0);
    detector.name = detector.type = name;
    config.plugins.push(detector);
    config.saturationDetector = detector;
    return;
  }
  const plugin = instance.plugin;
  if (plugin === null) return;
  if (plugin.is(PluginKind.SaturationDetector)) config.saturationDetector = plugin;
  else refNode.error("plugin '" + name + "' is not a fwkfc.SaturationDetector");
}
