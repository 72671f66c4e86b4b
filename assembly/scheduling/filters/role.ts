// `encode-filter`, `prefill-filter`, `decode-filter` (scheduler §7.3).
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { Role, rolesOf } from "../../endpoints/labels";
import { Plugin } from "../plugin";
import { LabelFilter } from "./label-filter";

export class RoleFilter extends LabelFilter {
  constructor(private readonly role: Role) {
    super();
  }

  static encode(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new RoleFilter(Role.Encode);
  }

  static prefill(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new RoleFilter(Role.Prefill);
  }

  static decode(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new RoleFilter(Role.Decode);
  }

  accepts(labels: Map<string, string>): bool {
    return (rolesOf(labels) & this.role) != 0;
  }
}
