import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";
import { isChatMedia } from "./chat";

/** Anthropic messages: the system text stands beside them; pictures may stand inside tool results. */
export class MessagesShape extends Shape {
  constructor() {
    super("/v1/messages", "anthropic-parser", true);
  }
  topMember(name: Name): Ctx {
    return name == Name.Messages ? Ctx.Messages : name == Name.System ? Ctx.Front : Ctx.Skip;
  }
  isMedia(type: Name): bool {
    return isChatMedia(type) || type == Name.Image;
  }
}
