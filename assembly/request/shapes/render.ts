import { ChatShape } from "./chat";
import { CompletionsShape } from "./completions";

// What only renders a prompt to tokens: the same body as the path above it, so that it goes where its prompt's next request will go. No engine computes anything for it: it is
// never split, and nobody holds more of its prompt afterwards.

/** `/v1/chat/completions/render` (scheduler RQ-07). */
export class ChatRenderShape extends ChatShape {
  constructor() {
    super("/v1/chat/completions/render", false, false);
  }
}

/** `/v1/completions/render`. */
export class CompletionsRenderShape extends CompletionsShape {
  constructor() {
    super("/v1/completions/render", false, false);
  }
}
