import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** OpenAI embeddings: like completions, and never split. */
export class EmbeddingsShape extends Shape {
  constructor() {
    super("/v1/embeddings", "openai-parser", false);
  }
  topMember(name: Name): Ctx {
    return name == Name.Input ? Ctx.Prompt : name == Name.Messages ? Ctx.Messages : Ctx.Skip;
  }
}
