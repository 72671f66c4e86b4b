// `probabilistic-admitter` (scheduler §2.6): sheds requests of negative priority, the more of them the more saturated the fleet is.
import { Build } from "../../config/build";
import { HUGE, MAX_SAFE, Node } from "../../config/node";
import { meanSaturation } from "../detectors/utilization";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

export class ProbabilisticAdmitter extends Plugin {
  constructor(
    private readonly queueDepth: f64,
    private readonly kvUsage: f64,
    private readonly power: f64,
    private readonly k: f64,
  ) {
    super(PluginKind.Admitter);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["queueDepthThreshold", "kvCacheUtilThreshold", "power", "k"]);
    return new ProbabilisticAdmitter(
      parameters.wholeOf("queueDepthThreshold", 5, 1, MAX_SAFE),
      aboveZero(parameters.get("kvCacheUtilThreshold"), 0.8),
      aboveZero(parameters.get("power"), 5),
      aboveZero(parameters.get("k"), 300),
    );
  }

  admits(pass: Pass): bool {
    if (pass.facts.priority >= 0 || pass.table.count == 0) return true;
    const saturation = meanSaturation(pass.table, this.queueDepth, this.kvUsage);
    // saturation^power, by exponential and logarithm: Math.pow would bring two kilobytes of its own.
    const raised = saturation > 0 ? Math.exp(this.power * Math.log(saturation)) : 0;
    return pass.random.unit() >= Math.min(raised * this.k, 1);
  }
}

function aboveZero(node: Node, fallback: f64): f64 {
  const value = node.float(fallback, 0, HUGE);
  if (value == 0) node.error("must be greater than 0");
  return value > 0 ? value : fallback;
}
