import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** SGLang's own generate: text or ids, one or a list; read where its parser is listed, and never split. */
export class SglangGenerateShape extends Shape {
  constructor() {
    super("/generate", "sglanghttp-parser", false);
  }
  topMember(name: Name): Ctx {
    return name == Name.Text || name == Name.InputIds ? Ctx.Prompt : Ctx.Skip;
  }
}
