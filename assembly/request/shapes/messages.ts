import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";
import { isChatMedia } from "./chat";

/** Anthropic messages: the system text stands beside them. */
export class MessagesShape extends Shape {
  get path(): string {
    return "/v1/messages";
  }
  topMember(name: Name): Ctx {
    return name == Name.Messages ? Ctx.Messages : name == Name.System ? Ctx.Front : Ctx.Skip;
  }
  isMedia(type: Name): bool {
    return isChatMedia(type);
  }
}
