// The answer of the validator as JSON, for the renderer and whoever else has no use for a scheduler.
import { JSON } from "json-as";
import { LoadResult } from "./document";
import { Problem } from "./problems";

@json
class ReportedProblem {
  path: string = "";
  message: string = "";
}

@json
class Report {
  errors: Array<ReportedProblem> = [];
  warnings: Array<ReportedProblem> = [];
  /** Places in the document's list of the endpoints that may decode: Envoy's decode cluster holds these and no others. */
  decodeEndpoints: Array<i32> = [];
  /** Port that replaces a decode endpoint's own in the destination, 0 for none. */
  primaryPort: i32 = 0;
  /** Places of the endpoints that were accepted. */
  endpoints: Array<i32> = [];
}

function copy(problems: Array<Problem>, out: Array<ReportedProblem>): void {
  for (let i = 0; i < problems.length; i++) {
    const reported = new ReportedProblem();
    reported.path = problems[i].path;
    reported.message = problems[i].message;
    out.push(reported);
  }
}

/** `{"errors":[{"path","message"}],"warnings":[…],"decodeEndpoints":[…],"primaryPort":n,"endpoints":[…]}`; the last three are empty or 0 with any error. */
export function renderReport(result: LoadResult): string {
  const report = new Report();
  copy(result.problems.errors, report.errors);
  copy(result.problems.warnings, report.warnings);
  const config = result.config;
  if (config !== null) {
    report.primaryPort = config.scheduler.primaryPort;
    for (let i = 0; i < config.endpoints.count; i++) {
      report.endpoints.push(config.sources[i]);
      if (config.scheduler.decodeCapable[i]) report.decodeEndpoints.push(config.sources[i]);
    }
  }
  return JSON.stringify<Report>(report);
}
