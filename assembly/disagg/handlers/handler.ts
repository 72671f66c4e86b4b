// A profile handler, as read from its parameters: which profile is which stage, and who decides. disagg/scheduler.ts runs the stages.
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../../scheduling/plugin";

/** A name in the parameters, with its place for messages. */
export class Reference {
  name: string = "";
  node: Node | null = null;

  set(name: string, node: Node): void {
    this.name = name;
    this.node = node;
  }

  error(message: string): void {
    const node = this.node;
    if (node !== null) node.error(message);
  }

  warn(message: string): void {
    const node = this.node;
    if (node !== null) node.warn(message);
  }
}

export class ProfileHandler extends Plugin {
  /** Profile names; "" for a stage that the handler does not have. With {@link single} the only profile decodes. */
  readonly decode: Reference = new Reference();
  readonly prefill: Reference = new Reference();
  readonly encode: Reference = new Reference();
  /** Decider instances; "" where none is named: the stage never runs. */
  readonly prefillDecider: Reference = new Reference();
  readonly encodeDecider: Reference = new Reference();
  /** Prefill is picked before decode, whenever its profile is there (scheduler §3.3). */
  prefillFirst: bool = false;
  /** Requests go to this port of the picked pod instead of the endpoint's own; 0: the endpoint's own (scheduler §3.7). */
  primaryPort: i32 = 0;
  /** The handler takes exactly one profile, whatever its name. */
  single: bool = false;

  constructor() {
    super(PluginKind.ProfileHandler);
  }
}

/** `node`'s text, or `fallback` for absent and empty. */
export function nameOr(node: Node, fallback: string): string {
  const name = node.text("");
  return name.length > 0 ? name : fallback;
}
