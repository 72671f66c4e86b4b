"""Writes a Llama of random numbers, two layers of 64: `text.py FOLDER`. Same numbers every time, so that its words can be compared."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tiny_tokenizer import CONTEXT_TOKENS, make, padded

# Tools are part of the rendered prompt: a template that leaves them out would hide a leg that lost them.
TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>tools\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% elif message['content'] %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

folder = sys.argv[1]
tokenizer = make(
    ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"],
    bos_token="<s>",
    eos_token="</s>",
    unk_token="<unk>",
    pad_token="</s>",
)
tokenizer.chat_template = TEMPLATE
tokenizer.save_pretrained(folder)
torch.manual_seed(20)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=padded(len(tokenizer)),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        # Far from the usual 0.02: the next token then hangs on the whole prompt, and a wrong KV cache shows in the words.
        initializer_range=0.5,
    )
)
model.to(torch.bfloat16).save_pretrained(folder)
