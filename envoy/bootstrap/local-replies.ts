import type { Json, JsonObject } from "../json.js";
import { note } from "../yaml.js";

interface Reply {
  readonly status: number;
  readonly type: string;
  readonly message: string;
}

/** Seconds that a client is told to wait where the reason is likely to pass. */
const RETRY_AFTER_SECONDS = 5;
const RETRY_AFTER: JsonObject = { headers_to_add: [{ header: { key: "retry-after", value: String(RETRY_AFTER_SECONDS) } }] };

/** Details with which the filter marks the answers that it gives itself: they have a JSON body of their own. */
export const FILTER_DETAILS_PREFIX = "crosspoint";

function replies(bodyLimitBytes: number): readonly Reply[] {
  return [
    { status: 400, type: "BadRequestError", message: "The request is not valid HTTP." },
    { status: 403, type: "ForbiddenError", message: "Upgrades of the connection are not served." },
    { status: 404, type: "NotFoundError", message: "There is nothing at this path." },
    { status: 405, type: "MethodNotAllowedError", message: "This method is not served." },
    { status: 408, type: "RequestTimeoutError", message: "The request did not arrive in time." },
    { status: 413, type: "PayloadTooLargeError", message: `The request's body is larger than ${String(bodyLimitBytes)} bytes.` },
    { status: 426, type: "UpgradeRequiredError", message: "HTTP/1.1 or HTTP/2 is needed." },
    { status: 431, type: "RequestHeaderFieldsTooLargeError", message: "The request's headers are too large or too many." },
    { status: 500, type: "InternalServerError", message: "The gateway failed." },
    { status: 502, type: "BadGateway", message: "The pod that was picked gave no valid answer." },
    { status: 503, type: "ServiceUnavailable", message: "No pod can take the request now." },
    { status: 504, type: "GatewayTimeout", message: "The pod that was picked did not answer in time." },
  ];
}

function detailsAre(expression: string): Json {
  return {
    extension_filter: {
      name: "envoy.access_loggers.extension_filters.cel",
      typed_config: { "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter", expression },
    },
  };
}

function unavailable(message: string): JsonObject {
  return { ...RETRY_AFTER, status_code: 503, body_format_override: bodyOf({ status: 503, type: "ServiceUnavailable", message }) };
}

function bodyOf(reply: Reply): Json {
  return {
    content_type: "application/json",
    json_format: { error: { message: reply.message, type: reply.type, param: null, code: reply.status } },
  };
}

function statusIs(status: number): Json {
  return { status_code_filter: { comparison: { op: "EQ", value: { default_value: status, runtime_key: `crosspoint.local_reply_${String(status)}` } } } };
}

/**
 * JSON for every answer that Envoy gives itself, in the shape that OpenAI's clients read. What the filter answers keeps its own body.
 */
export function localReplies(bodyLimitBytes: number): JsonObject {
  return {
    mappers: [
      note(
        {
          filter: detailsAre(`response.code_details.startsWith('${FILTER_DETAILS_PREFIX}')`),
          body_format_override: { content_type: "application/json", text_format_source: { inline_string: "%LOCAL_REPLY_BODY%" } },
        },
        { "": "The filter's own answers keep their body." },
      ),
      note(
        { filter: { response_flag_filter: { flags: ["NFCF"] } }, ...unavailable("The scheduler is not loaded.") },
        { "": "ECDS has not brought the filter yet: nothing passes undecided." },
      ),
      note({ filter: detailsAre("response.code_details == 'overload'"), ...unavailable("The gateway is out of memory.") }, { "": "Envoy says 500 where it cuts a request off." }),
      ...replies(bodyLimitBytes).map((reply) => ({
        filter: statusIs(reply.status),
        ...(reply.status === 503 ? RETRY_AFTER : {}),
        body_format_override: bodyOf(reply),
      })),
    ],
    body_format: { content_type: "application/json", json_format: { error: { message: "%LOCAL_REPLY_BODY%", type: "GatewayError", param: null, code: "%RESPONSE_CODE%" } } },
  };
}
