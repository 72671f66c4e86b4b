// The two kinds of text that Kubernetes uses for numbers: quantities (`1Gi`, `500m`, `1e3`) and durations (`1m30s`).
import { decimal } from "./json";
import { HUGE, Node } from "./node";

function isDigit(c: i32): bool {
  return c >= 0x30 && c <= 0x39;
}

/** Behind the digits, with at most one dot among them; `from` when there is no digit. */
function skipDecimal(text: string, from: i32): i32 {
  let at = from;
  let digits = 0;
  let dots = 0;
  while (at < text.length) {
    const c = text.charCodeAt(at);
    if (isDigit(c)) digits++;
    else if (c != 0x2e || dots++ > 0) break;
    at++;
  }
  return digits > 0 ? at : from;
}

/** Factor of a quantity's suffix, 0 for one that does not exist. */
function suffixFactor(suffix: string): f64 {
  if (suffix == "") return 1;
  if (suffix == "n") return 1e-9;
  if (suffix == "u") return 1e-6;
  if (suffix == "m") return 1e-3;
  const first = suffix.charAt(0);
  let power = 0;
  if (first == "k" || first == "K") power = 1;
  else if (first == "M") power = 2;
  else if (first == "G") power = 3;
  else if (first == "T") power = 4;
  else if (first == "P") power = 5;
  else if (first == "E") power = 6;
  if (power == 0) return 0;
  const binary = suffix.length == 2 && suffix.charAt(1) == "i";
  if (!binary && suffix.length != 1) return 0;
  // Kilo is `k`, kibi is `Ki`.
  if (power == 1 && (first == "K") != binary) return 0;
  let factor = 1.0;
  for (let i = 0; i < power; i++) factor *= binary ? 1024 : 1000;
  return factor;
}

/** Value of a quantity, NaN when the text is none. */
export function parseQuantity(text: string): f64 {
  let at = 0;
  let sign = 1.0;
  if (text.startsWith("-") || text.startsWith("+")) {
    if (text.startsWith("-")) sign = -1;
    at = 1;
  }
  const end = skipDecimal(text, at);
  if (end == at) return NaN;
  const suffix = text.substring(end);
  // `1E` and `1Ei` are suffixes, `1E3` is an exponent.
  const exponent = suffix.length > 1 && suffix != "Ei" && (suffix.charAt(0) == "e" || suffix.charAt(0) == "E");
  if (exponent) {
    let from = end + 1;
    if (text.charAt(from) == "-" || text.charAt(from) == "+") from++;
    if (from == text.length || text.length - from > 3) return NaN;
    for (let i = from; i < text.length; i++) if (!isDigit(text.charCodeAt(i))) return NaN;
    return sign * decimal(text, at, text.length);
  }
  const factor = suffixFactor(suffix);
  return factor == 0 ? NaN : sign * decimal(text, at, end) * factor;
}

/** A quantity, as text or as a number, that must not be negative; `fallback` when it is absent or broken. Fractions are rounded up, as Kubernetes has it. */
export function readQuantity(node: Node, fallback: f64): f64 {
  if (!node.present) return fallback;
  const value = node.isNumber ? node.float(NaN, -HUGE, HUGE) : node.isString ? parseQuantity(node.text("")) : NaN;
  if (node.isNumber && value != value) return fallback; // Reported already.
  if (value != value || Math.abs(value) > HUGE) node.error("must be a quantity like 1024 or 1Gi" + node.got());
  else if (value < 0) node.error("must be non-negative" + node.got());
  else return Math.ceil(value);
  return fallback;
}

/** Milliseconds of a duration like `1m30s`, `200ms`, `0`; NaN when the text is none. */
export function parseDuration(text: string): f64 {
  let at = 0;
  let sign = 1.0;
  if (text.startsWith("-") || text.startsWith("+")) {
    if (text.startsWith("-")) sign = -1;
    at = 1;
  }
  if (text.substring(at) == "0") return 0;
  if (at == text.length) return NaN;
  let total = 0.0;
  while (at < text.length) {
    const end = skipDecimal(text, at);
    if (end == at) return NaN;
    const value = decimal(text, at, end);
    let unitEnd = end;
    while (unitEnd < text.length && !isDigit(text.charCodeAt(unitEnd)) && text.charCodeAt(unitEnd) != 0x2e) unitEnd++;
    const unit = text.substring(end, unitEnd);
    let factor = 0.0;
    if (unit == "h") factor = 3600000;
    else if (unit == "m") factor = 60000;
    else if (unit == "s") factor = 1000;
    else if (unit == "ms") factor = 1;
    else if (unit == "us" || unit == "\u00b5s" || unit == "\u03bcs") factor = 1e-3;
    else if (unit == "ns") factor = 1e-6;
    if (factor == 0) return NaN;
    total += value * factor;
    at = unitEnd;
  }
  return total <= HUGE ? sign * total : NaN;
}

/** Milliseconds of a duration that must not be negative; `fallbackMs` when it is absent or broken. */
export function readDuration(node: Node, fallbackMs: f64): f64 {
  if (!node.present) return fallbackMs;
  const value = node.isString ? parseDuration(node.text("")) : NaN;
  if (value != value) node.error("must be a duration like 60s or 1m30s" + node.got());
  else if (value < 0) node.error("must be non-negative" + node.got());
  else return value;
  return fallbackMs;
}
