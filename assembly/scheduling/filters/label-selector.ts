// `label-selector-filter` and its old name `by-label-selector` (scheduler §7.1).
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { LabelSelector } from "../../endpoints/selector";
import { Plugin } from "../plugin";
import { LabelFilter } from "./label-filter";

export class LabelSelectorFilter extends LabelFilter {
  constructor(private readonly selector: LabelSelector) {
    super();
  }

  static read(parameters: Node, build: Build): Plugin {
    return new LabelSelectorFilter(LabelSelector.read(parameters));
  }

  accepts(labels: Map<string, string>): bool {
    return this.selector.matches(labels);
  }
}
