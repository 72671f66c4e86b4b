import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** vLLM's token-in generate: ids, counted exactly (scheduler DC-17); its media are features that somebody else has made. */
export class GenerateShape extends Shape {
  constructor() {
    super("/inference/v1/generate", "vllmhttp-parser", true);
  }
  topMember(name: Name): Ctx {
    return name == Name.TokenIds ? Ctx.Ids : name == Name.Features ? Ctx.Features : Ctx.Skip;
  }
}
