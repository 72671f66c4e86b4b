import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** OpenAI completions: a text, a list of texts, ids, or a list of lists of ids. */
export class CompletionsShape extends Shape {
  constructor(path: string = "/v1/completions", splits: bool = true, computes: bool = true) {
    super(path, "openai-parser", splits, computes);
  }
  topMember(name: Name): Ctx {
    return name == Name.Prompt ? Ctx.Prompt : Ctx.Skip;
  }
}
