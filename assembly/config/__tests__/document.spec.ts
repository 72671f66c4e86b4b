import { loadDocument } from "../document";
import { renderReport } from "../report";
import { documentJson, endpointsJson, hasWarning, loadPicker, pathsOf, problemsText } from "./support";

/** "" when the options have exactly this error. */
function optionError(options: string, path: string, fragment: string): string {
  const errors = loadDocument(documentJson("null", options)).problems.errors;
  return errors.length == 1 && errors[0].path == path && errors[0].message.includes(fragment) ? "" : problemsText(errors);
}

/** "" when the entry, the second of three, is left out with this warning and the others stand. */
function badEntry(entry: string, path: string, fragment: string): string {
  const result = loadDocument(documentJson("null", "null", '[{"name":"a","address":"10.0.0.1","port":1},' + entry + ',{"name":"c","address":"10.0.0.3","port":3}]'));
  const config = result.config;
  if (config === null) return problemsText(result.problems.errors);
  if (config.endpoints.count != 2 || config.endpoints.name[0] != "a" || config.endpoints.name[1] != "c" || config.sources[1] != 2) return "the others do not stand";
  return hasWarning(result, path, fragment);
}

describe("the plugin document", () => {
  it("loads", () => {
    const result = loadDocument('{"revision":41,"picker":{},"options":{},"endpoints":' + endpointsJson("decode prefill") + "}");
    expect(problemsText(result.problems.errors)).toBe("");
    const config = result.config!;
    expect(<i32>config.revision).toBe(41);
    expect(config.endpoints.count).toBe(2);
    expect(config.parsers.length).toBe(4);
  });

  it("must be a JSON object with a revision and endpoints", () => {
    expect(pathsOf(loadDocument("").problems.errors)).toBe("");
    expect(loadDocument("").problems.errors.length).toBe(1);
    expect(loadDocument("{").problems.errors[0].message).toBe("not valid JSON at character 1: expected a member name");
    expect(problemsText(loadDocument("null").problems.errors)).toBe(": must be an object");
    expect(problemsText(loadDocument("[]").problems.errors)).toBe(": must be an object");
    expect(pathsOf(loadDocument("{}").problems.errors)).toBe("revision endpoints");
    expect(pathsOf(loadDocument('{"revision":-1,"endpoints":[]}').problems.errors)).toBe("revision");
    expect(pathsOf(loadDocument('{"revision":1.5,"endpoints":{}}').problems.errors)).toBe("revision endpoints");
    expect(pathsOf(loadDocument('{"revision":1,"endpoints":[],"x":1}').problems.errors)).toBe("x");
    expect(loadDocument('{"revision":9007199254740991,"endpoints":[]}').config!.revision).toBe(9007199254740991);
  });

  it("all errors of all parts come at once, in a fixed order", () => {
    const text = '{"revision":1,"options":{"strict":5},"endpoints":[{"name":"a"}],"picker":{"kind":"x","plugins":[{"type":"y"}],"z":1}}';
    expect(pathsOf(loadDocument(text).problems.errors)).toBe("options.strict z kind plugins[0].type");
    expect(problemsText(loadDocument(text).problems.errors)).toBe(problemsText(loadDocument(text).problems.errors));
    expect(loadDocument(text).config === null).toBe(true);
  });
});

describe("FilterOptions", () => {
  it("have defaults", () => {
    const options = loadDocument(documentJson("null")).config!.options;
    expect(options.failOnMissingStage).toBe(false);
    expect(options.strict).toBe(false);
    expect(options.reasonHeader).toBe(false);
    expect(options.bodyLimitBytes).toBe(67108864);
    expect(options.indexBytes).toBe(67108864);
    expect(options.scrape.intervalMs).toBe(1000);
    expect(options.scrape.timeoutMs).toBe(800);
    expect(options.scrape.concurrency).toBe(16);
    expect(options.allowPaths.length).toBe(0);
    expect(options.tls.decode || options.tls.prefill || options.tls.encode || options.tls.scrape || options.tls.verify).toBe(false);
    expect(options.noDecodeStatus).toBe(503);
  });

  it("are read", () => {
    const options = loadDocument(
      documentJson(
        "null",
        '{"apiVersion":"crosspoint/v1","kind":"FilterOptions","onMissingStage":"fail","strict":true,"reasonHeader":true,"bodyLimitBytes":"8Mi","indexBytes":2097152,"scrape":{"intervalMs":500,"timeoutMs":100,"concurrency":4},"allowPaths":["/v1/x","/admin/*"],"tls":{"decode":true,"verify":true},"noDecodeStatus":429}',
      ),
    ).config!.options;
    expect(options.failOnMissingStage).toBe(true);
    expect(options.strict).toBe(true);
    expect(options.reasonHeader).toBe(true);
    expect(options.bodyLimitBytes).toBe(8388608);
    expect(options.indexBytes).toBe(2097152);
    expect(options.scrape.intervalMs).toBe(500);
    expect(options.scrape.timeoutMs).toBe(100);
    expect(options.scrape.concurrency).toBe(4);
    expect(options.allowPaths.join(" ")).toBe("/v1/x /admin/*");
    expect(options.tls.decode).toBe(true);
    expect(options.tls.prefill).toBe(false);
    expect(options.tls.verify).toBe(true);
    expect(options.noDecodeStatus).toBe(429);
  });

  it("are checked", () => {
    expect(optionError('{"apiVersion":"crosspoint/v2"}', "options.apiVersion", "crosspoint/v1")).toBe("");
    expect(optionError('{"kind":"EndpointPickerConfig"}', "options.kind", "FilterOptions")).toBe("");
    expect(optionError('{"onMissingStage":"skip"}', "options.onMissingStage", "local or fail")).toBe("");
    expect(optionError('{"strict":"yes"}', "options.strict", "true or false")).toBe("");
    expect(optionError('{"reasonHeader":1}', "options.reasonHeader", "true or false")).toBe("");
    expect(optionError('{"bodyLimitBytes":100}', "options.bodyLimitBytes", "between 1024 and 1073741824")).toBe("");
    expect(optionError('{"bodyLimitBytes":"2Gi"}', "options.bodyLimitBytes", "between 1024 and 1073741824")).toBe("");
    expect(optionError('{"bodyLimitBytes":"much"}', "options.bodyLimitBytes", "must be a quantity")).toBe("");
    expect(optionError('{"indexBytes":0}', "options.indexBytes", "between 1048576 and 2147483647")).toBe("");
    expect(optionError('{"scrape":{"intervalMs":10}}', "options.scrape.intervalMs", "between 50 and 3600000")).toBe("");
    expect(optionError('{"scrape":{"timeoutMs":0}}', "options.scrape.timeoutMs", "between 10 and 60000")).toBe("");
    expect(optionError('{"scrape":{"concurrency":1.5}}', "options.scrape.concurrency", "whole number")).toBe("");
    expect(optionError('{"scrape":{"interval":"1s"}}', "options.scrape.interval", "unknown field")).toBe("");
    expect(optionError('{"scrape":5}', "options.scrape", "must be an object")).toBe("");
    expect(optionError('{"allowPaths":"/x"}', "options.allowPaths", "must be a list")).toBe("");
    expect(optionError('{"allowPaths":["/ok","x"]}', "options.allowPaths[1]", "must be a path")).toBe("");
    expect(optionError('{"allowPaths":["/a?b"]}', "options.allowPaths[0]", "must be a path")).toBe("");
    expect(optionError('{"allowPaths":["/a*"]}', "options.allowPaths[0]", "must be a path")).toBe("");
    expect(optionError('{"tls":{"decode":"on"}}', "options.tls.decode", "true or false")).toBe("");
    expect(optionError('{"tls":{"sidecar":true}}', "options.tls.sidecar", "unknown field")).toBe("");
    expect(optionError('{"noDecodeStatus":500}', "options.noDecodeStatus", "503 or 429")).toBe("");
    expect(optionError('{"noDecodeStatus":"503"}', "options.noDecodeStatus", "whole number")).toBe("");
    expect(optionError('{"kvSourceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}', "options.kvSourceSelector.matchExpressions[0].values", "must not be empty")).toBe("");
    expect(optionError('{"onMissingStages":"fail"}', "options.onMissingStages", "unknown field")).toBe("");
    expect(optionError("[]", "options", "must be an object")).toBe("");
  });
});

describe("the index's memory", () => {
  it("that does not hold what every endpoint is to be remembered with is pointed out", () => {
    const roles = "decode ".repeat(300).trimEnd();
    const picker = '{"plugins":[{"type":"prefix-cache-scorer","parameters":{"lruCapacityPerServer":LRU}}]}';
    expect(hasWarning(loadPicker(picker.replace("LRU", "31250"), roles), "options.indexBytes", "27962 blocks of each of 300 endpoints, not the 31250")).toBe("");
    expect(hasWarning(loadPicker(picker.replace("LRU", "27962"), roles), "options.indexBytes", "remembers") != "").toBe(true);
    expect(hasWarning(loadPicker(picker.replace("LRU", "31250"), roles, '{"indexBytes":"128Mi"}'), "options.indexBytes", "remembers") != "").toBe(true);
  });
});

describe("endpoints", () => {
  it("IPv4 and IPv6, port as a number and as a string, namespace and labels", () => {
    const config = loadDocument(
      documentJson("null", "null", '[{"name":"a","address":"10.0.0.1","port":8000},{"name":"b","namespace":"n","address":"FD00:0:0:1::20","port":"8001","labels":{"llm-d.ai/role":"prefill","x":""}}]'),
    ).config!;
    const table = config.endpoints;
    expect(table.namespace[0]).toBe("default");
    expect(table.hostPort[0]).toBe("10.0.0.1:8000");
    expect(table.namespace[1]).toBe("n");
    expect(table.address[1]).toBe("fd00:0:0:1::20");
    expect(table.port[1]).toBe(8001);
    expect(table.hostPort[1]).toBe("[fd00:0:0:1::20]:8001");
    expect(table.labels[1].get("llm-d.ai/role")).toBe("prefill");
    expect(table.labels[1].has("x")).toBe(true);
    expect(table.usable[1]).toBe(1);
  });

  it("a bad entry is reported under its path and does not take the others down", () => {
    expect(badEntry('{"name":"b","port":2}', "endpoints[1].address", "is required")).toBe("");
    expect(badEntry('{"name":"b","address":"pod.example.test","port":2}', "endpoints[1].address", "must be an IPv4 or IPv6 address")).toBe("");
    expect(badEntry('{"name":"b","address":"[::1]","port":2}', "endpoints[1].address", "must be an IPv4 or IPv6 address")).toBe("");
    expect(badEntry('{"name":"b","address":5,"port":2}', "endpoints[1].address", "must be a string")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2"}', "endpoints[1].port", "is required")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":0}', "endpoints[1].port", "between 1 and 65535")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":65536}', "endpoints[1].port", "between 1 and 65535")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":80.5}', "endpoints[1].port", "between 1 and 65535")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":"http"}', "endpoints[1].port", "between 1 and 65535")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":"99999999999999999999"}', "endpoints[1].port", "between 1 and 65535")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":""}', "endpoints[1].port", "between 1 and 65535")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":2,"labels":{"rank":0}}', "endpoints[1].labels.rank", "must be a string")).toBe("");
    expect(badEntry('{"name":"b","address":"10.0.0.2","port":2,"labels":["x"]}', "endpoints[1].labels", "must be an object")).toBe("");
    expect(badEntry('{"name":5,"address":"10.0.0.2","port":2}', "endpoints[1].name", "must be a string")).toBe("");
    expect(badEntry('{"name":"b","name":"c","address":"10.0.0.2","port":2}', "endpoints[1].name", "given more than once")).toBe("");
    expect(badEntry('"10.0.0.2:8000"', "endpoints[1]", "must be an object")).toBe("");
    expect(badEntry("null", "endpoints[1]", "must be an object")).toBe("");
    expect(badEntry("[]", "endpoints[1]", "(the entry is left out)")).toBe("");
  });

  it("of two with one name the last counts, in the first one's place", () => {
    const result = loadDocument(documentJson("null", "null", '[{"name":"a","address":"10.0.0.1","port":1},{"name":"b","address":"10.0.0.2","port":2},{"name":"a","address":"10.0.0.3","port":3},{"name":"a","namespace":"x","address":"10.0.0.4","port":4}]'));
    const table = result.config!.endpoints;
    expect(table.count).toBe(3);
    expect(table.hostPort[0]).toBe("10.0.0.3:3");
    expect(hasWarning(result, "endpoints[2]", "the last one counts")).toBe("");
  });

  it("no name, an unknown field, a shared address, no endpoint at all: warnings", () => {
    const result = loadDocument(documentJson("null", "null", '[{"address":"10.0.0.1","port":1,"weight":3},{"name":"b","address":"10.0.0.1","port":1}]'));
    expect(result.config!.endpoints.name[0]).toBe("10.0.0.1:1");
    expect(hasWarning(result, "endpoints[0].name", "missing")).toBe("");
    expect(hasWarning(result, "endpoints[0].weight", "unknown field, ignored")).toBe("");
    expect(hasWarning(result, "endpoints[1]", "has the address of another endpoint")).toBe("");
    expect(hasWarning(loadDocument(documentJson("null")), "endpoints", "there is no endpoint")).toBe("");
  });
});

describe("the report", () => {
  it("names the endpoints that may decode by their place in the document", () => {
    const text =
      '{"revision":1,"picker":{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"decode-filter"}]},"endpoints":[{"name":"x"},{"name":"p","address":"10.0.0.1","port":1,"labels":{"llm-d.ai/role":"prefill"}},{"name":"d","address":"10.0.0.2","port":2}]}';
    expect(renderReport(loadDocument(text))).toBe(
      '{"errors":[],"warnings":[{"path":"endpoints[0].address","message":"is required (the entry is left out)"},{"path":"endpoints[0].port","message":"is required (the entry is left out)"}],"decodeEndpoints":[2],"primaryPort":0,"endpoints":[1,2]}',
    );
  });

  it("is JSON whatever the messages quote", () => {
    const report = renderReport(loadDocument(documentJson('{"kind":"a\\"\\\\\\u0001\\u2028\\ud800"}')));
    expect(report.includes('"path":"kind"')).toBe(true);
    expect(report.includes("\u0001")).toBe(false);
    expect(renderReport(loadDocument("{")).startsWith('{"errors":[{"path":"","message":"not valid JSON')).toBe(true);
  });
});
