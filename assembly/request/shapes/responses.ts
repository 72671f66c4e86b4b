import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";
import { isChatMedia } from "./chat";

/** OpenAI responses: a text or a list of items, instructions in front of them. */
export class ResponsesShape extends Shape {
  constructor() {
    super("/v1/responses", "openai-parser", true);
  }
  topMember(name: Name): Ctx {
    return name == Name.Input ? Ctx.Messages : name == Name.Instructions ? Ctx.Front : Ctx.Skip;
  }
  isMedia(type: Name): bool {
    return isChatMedia(type) || type == Name.InputImage;
  }
}
