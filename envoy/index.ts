/** The room's face: what scripts and tests use of the renderer. */
export { formatHostPort, type HostPort, parseHostPort } from "./address.js";
export { bootstrap, bootstrapText } from "./bootstrap/index.js";
export { type Composed, type Composition, compose, documentText } from "./compose.js";
export type { Endpoint, PluginDocument } from "./document.js";
export { type Inputs, type InputPaths, readInputs } from "./inputs.js";
export { formatProblem, type Problem, type Severity } from "./problems.js";
export { type Publication, publish, readPublished } from "./publish.js";
export { type RenderJob, renderOnce, type RenderResult } from "./renderer.js";
export { DEFAULT_SETTINGS, type Settings } from "./settings.js";
export { loadValidator, type ValidationReport, type Validator, type ValidatorProblem } from "./validate.js";
export { watchFiles } from "./watch.js";
