/**
 * Reads the members of a request the way pydantic does in its lax mode, collecting every error before it answers: one 400 that names each wrong member.
 */

import { ApiError } from "./errors.js";
import { isObject, member, type Json, type JsonObject } from "./json.js";

interface FieldError {
  readonly type: string;
  readonly loc: readonly string[];
  readonly msg: string;
}

export interface NumberRule {
  min?: number;
  max?: number;
}

export class Fields {
  readonly errors: FieldError[];

  constructor(
    readonly object: JsonObject,
    private readonly loc: readonly string[] = ["body"],
    errors: FieldError[] = [],
  ) {
    this.errors = errors;
  }

  has(name: string): boolean {
    const value = member(this.object, name);
    return value !== undefined && value !== null;
  }

  raw(name: string): Json {
    return member(this.object, name) ?? null;
  }

  fail(name: string, type: string, msg: string): void {
    this.errors.push({ type, loc: [...this.loc, name], msg });
  }

  required(name: string): void {
    if (member(this.object, name) === undefined) this.fail(name, "missing", "Field required");
  }

  int(name: string, rule: NumberRule = {}): number | null {
    const value = this.raw(name);
    if (value === null) return null;
    if (typeof value === "bigint") return this.inRange(name, Number(value), rule);
    const number = typeof value === "string" && /^[+-]?\d+$/.test(value.trim()) ? Number(value) : typeof value === "boolean" ? Number(value) : value;
    if (typeof number !== "number" || Number.isNaN(number)) {
      this.fail(name, "int_type", "Input should be a valid integer");
      return null;
    }
    if (!Number.isInteger(number)) {
      this.fail(name, Number.isFinite(number) ? "int_from_float" : "finite_number", "Input should be a valid integer, got a number with a fractional part");
      return null;
    }
    return this.inRange(name, number, rule);
  }

  number(name: string, rule: NumberRule = {}): number | null {
    const value = this.raw(name);
    if (value === null) return null;
    const number = typeof value === "bigint" ? Number(value) : typeof value === "string" && value.trim() !== "" ? Number(value) : value;
    if (typeof number !== "number" || (Number.isNaN(number) && value !== number)) {
      this.fail(name, "float_type", "Input should be a valid number");
      return null;
    }
    return this.inRange(name, number, rule);
  }

  bool(name: string): boolean | null {
    const value = this.raw(name);
    if (value === null || typeof value === "boolean") return value;
    if (value === 1 || (typeof value === "string" && /^(true|t|yes|y|on|1)$/i.test(value))) return true;
    if (value === 0 || (typeof value === "string" && /^(false|f|no|n|off|0)$/i.test(value))) return false;
    this.fail(name, "bool_parsing", "Input should be a valid boolean, unable to interpret input");
    return null;
  }

  string(name: string): string | null {
    const value = this.raw(name);
    if (value === null || typeof value === "string") return value;
    this.fail(name, "string_type", "Input should be a valid string");
    return null;
  }

  list(name: string): Json[] | null {
    const value = this.raw(name);
    if (value === null || Array.isArray(value)) return value;
    this.fail(name, "list_type", "Input should be a valid list");
    return null;
  }

  dict(name: string): JsonObject | null {
    const value = this.raw(name);
    if (value === null || isObject(value)) return value;
    this.fail(name, "dict_type", "Input should be a valid dictionary");
    return null;
  }

  /** Reader of an inner object; its errors are reported with this one's. */
  inner(name: string): Fields | null {
    const value = this.dict(name);
    return value === null ? null : new Fields(value, [...this.loc, name], this.errors);
  }

  /** @throws ApiError 400 when anything was wrong */
  done(): void {
    const first = this.errors[0];
    if (first === undefined) return;
    const lines = this.errors.map((error) => `  {'type': '${error.type}', 'loc': (${error.loc.map((part) => `'${part}'`).join(", ")}), 'msg': '${error.msg}'}`);
    const head = `${String(lines.length)} validation error${lines.length === 1 ? "" : "s"}:`;
    throw new ApiError(400, [head, ...lines].join("\n"), first.loc.slice(1).join("."), "Bad Request");
  }

  private inRange(name: string, value: number, rule: NumberRule): number | null {
    if (rule.min !== undefined && value < rule.min) {
      this.fail(name, "greater_than_equal", `Input should be greater than or equal to ${String(rule.min)}`);
      return null;
    }
    if (rule.max !== undefined && value > rule.max) {
      this.fail(name, "less_than_equal", `Input should be less than or equal to ${String(rule.max)}`);
      return null;
    }
    return value;
  }
}
