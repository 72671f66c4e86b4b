// Kubernetes label selectors (scheduler §7.1).
import { Node } from "../config/node";
import { isLabelKey, isLabelValue } from "./labels";

const enum Operator {
  In,
  NotIn,
  Exists,
  DoesNotExist,
}

class Requirement {
  constructor(
    public readonly key: string,
    public readonly operator: Operator,
    public readonly values: Array<string>,
  ) {}

  matches(labels: Map<string, string>): bool {
    const has = labels.has(this.key);
    if (this.operator == Operator.Exists) return has;
    if (this.operator == Operator.DoesNotExist) return !has;
    const listed = has && this.values.includes(labels.get(this.key));
    return this.operator == Operator.In ? listed : !listed;
  }
}

export class LabelSelector {
  private readonly requirements: Array<Requirement> = [];

  /** True when all requirements hold; a selector without any matches everything (scheduler FL-10). */
  matches(labels: Map<string, string>): bool {
    for (let i = 0; i < this.requirements.length; i++) {
      if (!this.requirements[i].matches(labels)) return false;
    }
    return true;
  }

  get isEmpty(): bool {
    return this.requirements.length == 0;
  }

  /** Reads `{matchLabels, matchExpressions}`; what is wrong is reported at `node` and left out of the selector. */
  static read(node: Node): LabelSelector {
    const selector = new LabelSelector();
    if (!node.fields(["matchLabels", "matchExpressions"])) return selector;

    const matchLabels = node.get("matchLabels");
    if (matchLabels.object()) {
      const seen = new Map<string, i32>();
      const members = matchLabels.members();
      for (let i = 0; i < members.length; i++) {
        const member = members[i];
        if (seen.has(member.name)) member.error("given more than once");
        seen.set(member.name, i);
        if (!isLabelKey(member.name)) member.error("not a valid label key");
        selector.requirements.push(new Requirement(member.name, Operator.In, [readValue(member)]));
      }
    }

    const expressions = node.get("matchExpressions");
    const items = expressions.elements();
    for (let i = 0; i < items.length; i++) readExpression(items[i], selector);
    return selector;
  }

  add(key: string, operator: Operator, values: Array<string>): void {
    this.requirements.push(new Requirement(key, operator, values));
  }
}

function readValue(node: Node): string {
  if (!node.isString) {
    node.error("must be a string");
    return "";
  }
  const value = node.text("");
  if (!isLabelValue(value)) node.error("not a valid label value");
  return value;
}

function readExpression(node: Node, selector: LabelSelector): void {
  if (!node.fields(["key", "operator", "values"])) return;
  const keyNode = node.get("key");
  const key = keyNode.text("");
  if (keyNode.isString || !keyNode.present) {
    if (!isLabelKey(key)) keyNode.error(key.length == 0 ? "is required" : "not a valid label key");
  }
  const valuesNode = node.get("values");
  const values = new Array<string>();
  const items = valuesNode.elements();
  for (let i = 0; i < items.length; i++) values.push(readValue(items[i]));
  const operatorNode = node.get("operator");
  const word = operatorNode.text("");
  if (word == "In" || word == "NotIn") {
    if (valuesNode.length == 0 && (valuesNode.isArray || !valuesNode.present)) valuesNode.error("must not be empty with the operator " + word);
    selector.add(key, word == "In" ? Operator.In : Operator.NotIn, values);
  } else if (word == "Exists" || word == "DoesNotExist") {
    if (values.length > 0) valuesNode.error("must be empty with the operator " + word);
    selector.add(key, word == "Exists" ? Operator.Exists : Operator.DoesNotExist, values);
  } else if (operatorNode.isString || !operatorNode.present) {
    operatorNode.error("is not a valid label selector operator: must be In, NotIn, Exists or DoesNotExist");
  }
}
