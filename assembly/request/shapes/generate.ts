import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** vLLM's token-in generate: ids, counted exactly (scheduler DC-17). */
export class GenerateShape extends Shape {
  get path(): string {
    return "/inference/v1/generate";
  }
  topMember(name: Name): Ctx {
    return name == Name.TokenIds ? Ctx.Ids : Ctx.Skip;
  }
  isMedia(type: Name): bool {
    return false;
  }
}
