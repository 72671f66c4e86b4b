import { describe, expect, it } from "vitest";
import { isMultipart, multipartProblem } from "./multipart.js";
import { Pieces } from "./pieces.js";

const TYPE = "multipart/form-data; boundary=b";

const pieces = (body: Buffer): Pieces => new Pieces([body.subarray(0, 7), body.subarray(7)]);

function form(...fields: readonly (readonly [disposition: string, value: string])[]): Buffer {
  return Buffer.from(fields.map(([disposition, value]) => `--b\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${value}\r\n`).join("") + "--b--\r\n");
}

describe("multipartProblem", () => {
  it("lets ordinary forms pass", async () => {
    const audio = Buffer.concat([form(['name="file"; filename="a.wav"', ""]), Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 31) & 0xff)), form(['name="model"', "whisper"], ['name="prompt"', "the bootstrap_ method and transfer of params, 100%25 \\\\server\\kv"])]);
    expect(await multipartProblem(TYPE, pieces(audio))).toBeNull();
    expect(await multipartProblem(`${TYPE}; charset=utf-8`, pieces(audio))).toBeNull();
  });

  it.each([
    ['name="kv_transfer_params"', "{}"],
    ['name="KV_Transfer_Params"', "{}"],
    ["name=kv_transfer_params", "{}"],
    ['name="ec_transfer_params"', "{}"],
    ['name="ec\\_transfer_params"', "{}"],
    ["name*=utf-8''kv%5Ftransfer_params", "{}"],
    ["name*0=\"kv_trans\"; name*1=\"fer_params\"", "{}"],
    ['name="bootstrap_host"', "h"],
    ['name="vllm_xargs"', '{"kv\\u005ftransfer_params":{}}'],
    ['name="vllm_xargs[kv_transfer_params]"', "x"],
    ['name="extra_body"', '{"\\u006bv_transfer_params":1}'],
    ['name="extra_body"', '{"kv_transfer\\u005Fparams":1}'],
    ['name="extra_body"', '{"b\\u006Fotstrap_host":1}'],
    ['name="extra_body"', '{"a":"{\\"kv_tr\\\\u0061nsfer_params\\":1}"}'],
    ['name="extra_body"', [..."kv_transfer_params"].map((letter) => `\\\\u00${letter.charCodeAt(0).toString(16)}`).join("")],
    ['name="extra_body"', "%7B%22kv%5Ftransfer_params%22%3A1%7D"],
    ['name="kv_transfer%5Fparams"', "{}"],
    ['name="kv_transfer%25255fparams"', "{}"],
    ['name="k\\v_transfer_params"', "{}"],
    ['name="kv_trans%5Cfer_params"', "{}"],
    ['name="vllm%5Fxargs"', "{}"],
    ['name="vllm_\\xargs"', "{}"],
    ["name=bootstrap_host", "h"],
    ['name="%62ootstrap_host"', "h"],
    ['name="=?utf-8?B?a3ZfdHJhbnNmZXJfcGFyYW1z?="', "{}"],
    ['name="extra_body"\r\nContent-Type: application/json; charset="UTF-16LE"', "{}"],
    ['name="extra_body"\r\nContent-Transfer-Encoding: quoted-printable', "kv=5Ftransfer=5Fparams"],
    ['name="_charset_"', "utf-7"],
  ])("refuses %s", async (disposition, value) => {
    expect(await multipartProblem(TYPE, pieces(form(['name="model"', "m"], [disposition, value])))).toBe("control_member");
  });

  it("refuses names in another charset and more than one boundary", async () => {
    expect(await multipartProblem(`${TYPE}; charset=utf-7`, pieces(form()))).toBe("charset");
    expect(await multipartProblem(`${TYPE}; charset="utf-16"; charset=utf-8`, pieces(form()))).toBe("charset");
    expect(await multipartProblem(`${TYPE}; charset*=utf-8''utf-7`, pieces(form()))).toBe("charset");
    expect(await multipartProblem("multipart/form-data", pieces(form()))).toBe("boundary");
    expect(await multipartProblem(`${TYPE}; boundary=c`, pieces(form()))).toBe("boundary");
  });

  it("finds a name across the seams of its search", async () => {
    const name = Buffer.from('name="kv_transfer_params"');
    for (const before of [256 * 1024 - 10, 256 * 1024, 512 * 1024 - 1]) {
      expect(await multipartProblem(TYPE, pieces(Buffer.concat([Buffer.alloc(before, "x"), name, Buffer.alloc(10, "y")])))).toBe("control_member");
    }
  });

  it.each(["\\", "%25", "\\%5cu"])("a form of nothing but %s takes no long time", async (text) => {
    const before = performance.now();
    expect(await multipartProblem(TYPE, pieces(Buffer.alloc(2 << 20, text)))).toBeNull();
    expect(performance.now() - before).toBeLessThan(1500);
  });

  it("knows a form by its type", () => {
    expect([isMultipart(TYPE), isMultipart("Multipart/Form-Data"), isMultipart("multipart/mixed; boundary=b"), isMultipart("application/json"), isMultipart("multipart/form-datax")]).toEqual([true, true, false, false, false]);
  });
});
