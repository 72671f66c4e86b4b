import { describe, expect, it } from "vitest";
import { ApiError } from "./errors.js";

describe("ApiError", () => {
  it("has the field's shape with the reference's types", () => {
    const error = new ApiError(502, 'prefill "x" failed', "x-prefiller-host-port");
    expect(JSON.parse(error.body().toString())).toEqual({ error: { message: 'prefill "x" failed', type: "BadGateway", param: "x-prefiller-host-port", code: 502 } });
    expect(error.headers()).toEqual(["content-type", "application/json", "content-length", String(error.body().length)]);
    expect(JSON.parse(new ApiError(400, "m").body().toString())).toEqual({ error: { message: "m", type: "BadRequestError", param: null, code: 400 } });
  });

  it("asks to retry while a service is not there", () => {
    expect(new ApiError(503, "m").headers().slice(-2)).toEqual(["retry-after", "5"]);
  });
});
