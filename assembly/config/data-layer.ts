// The dataLayer section (scheduler §1.2, §1.4): where the metrics come from, and what reads them.
import { Plugin, PluginKind } from "../scheduling/plugin";
import { CoreMetricsExtractor, ExtractorParams } from "../scheduling/producers/core-metrics-extractor";
import { MetricsDataSource, MetricsSourceParams } from "../scheduling/producers/metrics-data-source";
import { Build, NOT_IN_LINE } from "./build";
import { JsonDoc } from "./json";
import { Node } from "./node";
import { PickerConfig } from "./picker";
import { readDuration } from "./quantity";

export class MetricsConfig {
  /** False: `injectDefaults` is off and no source is named, so nothing is scraped and every load value stays unknown. */
  enabled: bool = false;
  source: MetricsSourceParams = new MetricsSourceParams();
  extractor: ExtractorParams = new ExtractorParams();
}

export function readDataLayer(node: Node, config: PickerConfig): MetricsConfig {
  const out = new MetricsConfig();
  let source: Plugin | null = null;
  let extractor: Plugin | null = null;
  let injectDefaults = true;
  if (node.fields(["injectDefaults", "sources", "discovery", "peerDiscovery", "crossReplicaSyncerPluginRef", "crossReplicaSyncInterval"])) {
    injectDefaults = node.boolOf("injectDefaults", true);
    const list = node.get("sources");
    const items = list.elements();
    for (let i = 0; i < items.length; i++) {
      const item = items[i];
      if (!item.fields(["pluginRef", "extractors"])) continue;
      const found = resolve(item.get("pluginRef"), config, PluginKind.DataSource, "DataSource");
      if (source === null) source = found;
      const extractors = item.get("extractors");
      const inner = extractors.elements();
      for (let k = 0; k < inner.length; k++) {
        if (!inner[k].fields(["pluginRef"])) continue;
        const reader = resolve(inner[k].get("pluginRef"), config, PluginKind.Extractor, "Extractor");
        if (extractor === null && reader !== null && reader instanceof CoreMetricsExtractor) extractor = reader;
      }
    }
    const discovery = node.get("discovery");
    if (discovery.fields(["pluginRef"])) {
      resolve(discovery.get("pluginRef"), config, PluginKind.Discovery, "EndpointDiscovery");
      discovery.warn("the renderer reads the endpoints");
    }
    const peers = node.get("peerDiscovery");
    if (peers.fields(["pluginRef"])) {
      peers.textOf("pluginRef", "");
      peers.warn("ignored: an Envoy shares no state with another");
    }
    const syncer = node.get("crossReplicaSyncerPluginRef");
    if (syncer.text("").length > 0) syncer.error(NOT_IN_LINE + "an Envoy shares no state with another");
    readDuration(node.get("crossReplicaSyncInterval"), 0);
  }
  // The defaults are the declared instances of these names where there are any (scheduler §1.4, 7).
  if (injectDefaults) {
    if (source === null) source = named(config, "metrics-data-source");
    if (extractor === null) extractor = named(config, "core-metrics-extractor");
  }
  out.enabled = injectDefaults || source !== null;
  if (!out.enabled) node.warn("no data sources configured; metrics collection is disabled");
  if (source !== null && source instanceof MetricsDataSource) out.source = (<MetricsDataSource>source).params;
  if (extractor !== null && extractor instanceof CoreMetricsExtractor) out.extractor = (<CoreMetricsExtractor>extractor).params;
  else out.extractor = defaultExtractor(config);
  return out;
}

function defaultExtractor(config: PickerConfig): ExtractorParams {
  const build = new Build(config.problems);
  const made = CoreMetricsExtractor.read(Node.root(JsonDoc.parse("null"), 0, "", config.problems), build);
  return (<CoreMetricsExtractor>made).params;
}

function named(config: PickerConfig, name: string): Plugin | null {
  const instance = config.find(name);
  return instance === null ? null : instance.plugin;
}

function resolve(node: Node, config: PickerConfig, kind: PluginKind, kindName: string): Plugin | null {
  const name = node.text("");
  if (node.present && !node.isString) return null;
  const instance = config.find(name);
  if (instance === null) {
    node.error("the plugin " + name + " is not registered");
    return null;
  }
  const plugin = instance.plugin;
  if (plugin === null) return null;
  if (plugin.is(kind)) return plugin;
  node.error("the plugin " + name + " is not a fwkdl." + kindName);
  return null;
}
