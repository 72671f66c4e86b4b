// `by-label`, the deprecated filter on one label (scheduler §7.2).
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin } from "../plugin";
import { LabelFilter } from "./label-filter";

export class ByLabelFilter extends LabelFilter {
  constructor(
    private readonly label: string,
    private readonly validValues: Array<string>,
    private readonly allowsNoLabel: bool,
  ) {
    super();
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["label", "validValues", "allowsNoLabel"]);
    const labelNode = parameters.get("label");
    const label = labelNode.text("");
    if (label.length == 0 && (labelNode.isString || !labelNode.present)) labelNode.error("is required");
    const valuesNode = parameters.get("validValues");
    const values = valuesNode.texts();
    const allowsNoLabel = parameters.boolOf("allowsNoLabel", false);
    if (valuesNode.length == 0 && !allowsNoLabel && (valuesNode.isArray || !valuesNode.present)) {
      valuesNode.error("must not be empty unless allowsNoLabel is true");
    }
    return new ByLabelFilter(label, values, allowsNoLabel);
  }

  accepts(labels: Map<string, string>): bool {
    // A label with an empty value counts as there.
    return labels.has(this.label) ? this.validValues.includes(labels.get(this.label)) : this.allowsNoLabel;
  }
}
