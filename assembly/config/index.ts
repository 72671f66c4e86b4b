export { loadDocument, LoadedConfig, LoadResult } from "./document";
export { FilterOptions, ScrapeOptions, TlsOptions } from "./options";
export { Problem, Problems } from "./problems";
export { renderReport } from "./report";
