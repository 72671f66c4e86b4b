import { expect, it } from "vitest";
import { formatProblem } from "./problems.js";

it("says file, line, field and reason in the form that editors link", () => {
  expect(formatProblem({ severity: "error", file: "epp.yaml", line: 7, path: "plugins[0].type", message: "is required" })).toBe("epp.yaml:7: error: plugins[0].type: is required");
  expect(formatProblem({ severity: "entry", file: "endpoints.yaml", line: 3, path: "endpoints[1]", message: "d1 is left out" })).toBe("endpoints.yaml:3: error: endpoints[1]: d1 is left out");
  expect(formatProblem({ severity: "warning", file: "x", path: "", message: "m" })).toBe("x: warning: m");
  expect(formatProblem({ severity: "error", file: "x", path: "endpoints[0].\u001b[31mred", message: "m" })).toBe("x: error: endpoints[0].\\u001b[31mred: m");
});
