"""Writes a Qwen2-VL of random numbers, two layers of 64 and a vision tower of one: `vision.py FOLDER`."""

import sys

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLProcessor, Qwen2VLVideoProcessor

try:
    from transformers import Qwen2VLImageProcessorFast as ImageProcessor
except ImportError:
    from transformers import Qwen2VLImageProcessor as ImageProcessor

from tiny_tokenizer import CONTEXT_TOKENS, make, padded

SPECIAL = ["<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') or 'image' in part or 'image_url' in part %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A picture becomes 4 to 16 tokens: the tower cuts squares of 28 pixels.
PIXELS = {"min_pixels": 4 * 28 * 28, "max_pixels": 16 * 28 * 28}

folder = sys.argv[1]
tokenizer = make(
    SPECIAL,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    unk_token="<unk>",
    additional_special_tokens=SPECIAL[2:],
)
tokenizer.chat_template = TEMPLATE
Qwen2VLProcessor(
    image_processor=ImageProcessor(**PIXELS),
    tokenizer=tokenizer,
    video_processor=Qwen2VLVideoProcessor(**PIXELS),
    chat_template=TEMPLATE,
).save_pretrained(folder)
tokenizer.save_pretrained(folder)
ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
torch.manual_seed(20)
model = Qwen2VLForConditionalGeneration(
    Qwen2VLConfig(
        text_config={
            "vocab_size": padded(len(tokenizer)),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT_TOKENS,
            "rope_parameters": {"rope_type": "default", "type": "mrope", "mrope_section": [4, 6, 6], "rope_theta": 10000.0},
            "bos_token_id": ids["<|im_start|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "initializer_range": 0.5,
            "tie_word_embeddings": False,
        },
        vision_config={
            "depth": 1,
            "embed_dim": 64,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "in_channels": 3,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
)
model.to(torch.bfloat16).save_pretrained(folder)
