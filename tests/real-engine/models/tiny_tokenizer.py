"""A byte-level BPE tokenizer, trained on the spot: whatever text it is given it can encode, and nothing is fetched from a hub."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CONTEXT_TOKENS = 2048
VOCABULARY = 512

# Words that tests use often; all else falls apart into bytes.
TEXT = [
    "the harbour office keeps a ledger of every vessel that enters the bay with its tide cargo and berth",
    "the night ferry leaves the northern pier when the last lamp on the mole is lit",
    "system user assistant tool call json stream token image",
    "be brief and say what you see",
]


def make(special: list[str], **named: str) -> PreTrainedTokenizerFast:
    """special: the special tokens, in the order of their ids; named: bos_token, eos_token ... among them."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXT * 16, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
        **named,
    )


def padded(count: int) -> int:
    """Rows of the embedding for that many tokens: whole groups of 64, as kernels like them."""
    return -(-count // 64) * 64
