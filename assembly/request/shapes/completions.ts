import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** OpenAI completions: a text, a list of texts, ids, or a list of lists of ids. */
export class CompletionsShape extends Shape {
  constructor() {
    super("/v1/completions", "openai-parser", true);
  }
  topMember(name: Name): Ctx {
    return name == Name.Prompt ? Ctx.Prompt : Ctx.Skip;
  }
}
