/** The registry of generation APIs: a new shape is one file and one line here. */

import { chatRoute } from "./chat.js";
import { completionsRoute } from "./completions.js";
import { generateRoute } from "./generate.js";
import { messagesRoute } from "./messages.js";
import type { ApiRoute } from "./request.js";
import { responsesRoute } from "./responses.js";

const ROUTES: readonly ApiRoute[] = [chatRoute, completionsRoute, messagesRoute, responsesRoute, generateRoute];
const BY_PATH = new Map(ROUTES.flatMap((route) => route.paths.map((path) => [path, route] as const)));

export function generationRoute(path: string): ApiRoute | undefined {
  return BY_PATH.get(path);
}

export const GENERATION_PATHS: readonly string[] = [...BY_PATH.keys()];
