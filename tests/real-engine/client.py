"""The openai package from PyPI, as its users write it: `client.py BASE_URL MODEL`. Prints one JSON line per call: what it was, the words, the usage, the filter's decision."""

import json
import sys
import uuid

from openai import OpenAI

base_url, model = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=60)
LEDGER = "the harbour office keeps a ledger of every vessel that enters the bay " * 5


def fresh() -> str:
    return f"{uuid.uuid4()} {LEDGER}"


def say(call: str, text: str, usage, decision: str | None) -> None:
    print(json.dumps({"call": call, "text": text, "usage": usage.model_dump() if usage else None, "decision": json.loads(decision) if decision else None}), flush=True)


def decided(raw) -> str | None:
    return raw.headers.get("x-crosspoint-decision")


messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": fresh()}]
raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=8, temperature=0)
answer = raw.parse()
say("chat", answer.choices[0].message.content or "", answer.usage, decided(raw))

raw = client.chat.completions.with_raw_response.create(
    model=model,
    messages=[{"role": "user", "content": fresh()}],
    max_completion_tokens=8,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
    extra_body={"top_k": 1},
)
text, usage = "", None
for chunk in raw.parse():
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
say("chat, streamed", text, usage, decided(raw))

raw = client.completions.with_raw_response.create(model=model, prompt=fresh(), max_tokens=8, temperature=0, logprobs=2)
answer = raw.parse()
say("completions", answer.choices[0].text, answer.usage, decided(raw))

raw = client.responses.with_raw_response.create(model=model, input=fresh(), max_output_tokens=16, temperature=0)
answer = raw.parse()
say("responses", answer.output_text, answer.usage, decided(raw))

with client.responses.stream(model=model, input=[{"role": "user", "content": fresh()}], max_output_tokens=16, temperature=0) as stream:
    for event in stream:
        pass
    answer = stream.get_final_response()
say("responses, streamed", answer.output_text, answer.usage, None)

models = [entry.id for entry in client.models.list()]
say("models", ",".join(models), None, None)
