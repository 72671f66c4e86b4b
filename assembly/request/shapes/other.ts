import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** Every other JSON body: only what a stage must remove or refuse is looked for. */
export class OtherShape extends Shape {
  get path(): string {
    return "";
  }
  topMember(name: Name): Ctx {
    return Ctx.Skip;
  }
  isMedia(type: Name): bool {
    return false;
  }
}
