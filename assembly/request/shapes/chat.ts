import { Ctx } from "../reader";
import { Name } from "../names";
import { Shape } from "../shape";

/** The four content types that are media wherever chat content stands (scheduler §4.1). */
export function isChatMedia(type: Name): bool {
  return type == Name.ImageUrl || type == Name.AudioUrl || type == Name.VideoUrl || type == Name.InputAudio;
}

/** OpenAI chat completions. */
export class ChatShape extends Shape {
  constructor(path: string = "/v1/chat/completions", splits: bool = true, computes: bool = true) {
    super(path, "openai-parser", splits, computes);
  }
  topMember(name: Name): Ctx {
    return name == Name.Messages ? Ctx.Messages : Ctx.Skip;
  }
  isMedia(type: Name): bool {
    return isChatMedia(type);
  }
}
