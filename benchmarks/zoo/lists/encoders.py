"""Models that encode a text, and those that turn one text into another."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.entry import Entry, Input, ids, open_ids

VOCABULARY = 1000
USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 256, "pad_token_id": 0,
}  # fmt: skip
MASK = Input("attention_mask", (1, 64), "ones", 1)
OPEN_MASK = Input("attention_mask", (1, 64), "ones", 1, {0: "batch", 1: "sequence"})
FEATURES = {"hidden_dropout": 0.0, "activation_dropout": 0.0}


def _encoder(name: str, kind: str, sample: bool = False, inputs: tuple[Input, ...] = (), **config: Any) -> Entry:
    """Hidden states of 64 tokens that a mask says are all there."""
    return Entry(name, "encoders", "transformers", kind, inputs or (ids(64, VOCABULARY), MASK), {**USUAL, **config},
                 sample)  # fmt: skip


ENCODERS = (
    _encoder("roberta", "RobertaModel", max_position_embeddings=258, pad_token_id=1),
    _encoder("albert", "AlbertModel", embedding_size=64),
    _encoder("electra", "ElectraModel", embedding_size=128),
    _encoder("deberta", "DebertaModel", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _encoder("deberta-v2", "DebertaV2Model", sample=True, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _encoder("mpnet", "MPNetModel", pad_token_id=1),
    _encoder("fnet", "FNetModel", inputs=(ids(64, VOCABULARY),)),
    _encoder("nystromformer", "NystromformerModel", inputs=(ids(64, VOCABULARY),), num_landmarks=16,
             segment_means_seq_len=64),
    _encoder("convbert", "ConvBertModel", embedding_size=128),
    _encoder("squeezebert", "SqueezeBertModel", embedding_size=256),
    _encoder("mobilebert", "MobileBertModel", embedding_size=64, intra_bottleneck_size=128),
    _encoder("modernbert", "ModernBertModel", local_attention=16, bos_token_id=1, eos_token_id=2, cls_token_id=1,
             sep_token_id=2),
    _encoder("esm", "EsmModel", position_embedding_type="rotary", mask_token_id=3, token_dropout=False),
    _encoder("roformer", "RoFormerModel", embedding_size=256),
    _encoder("rembert", "RemBertModel", input_embedding_size=64),
    _encoder("layoutlm", "LayoutLMModel"),
    _encoder("ibert", "IBertModel"),
    _encoder("megatron-bert", "MegatronBertModel", inputs=(open_ids(64, VOCABULARY), OPEN_MASK)),
    _encoder("big-bird", "BigBirdModel", attention_type="original_full"),
    _encoder("longformer", "LongformerModel", attention_window=32, max_position_embeddings=258, pad_token_id=1),
    _encoder("canine", "CanineModel", inputs=(ids(64, 1000),), num_hash_buckets=1024),
    _encoder("ernie", "ErnieModel"),
    _encoder("splinter", "SplinterModel"),
    _encoder("xmod", "XmodModel", default_language="en_XX", languages=["en_XX"], max_position_embeddings=258),
    _encoder("clip-text", "CLIPTextModel", bos_token_id=1, eos_token_id=2),
)  # fmt: skip

_PAIR = (ids(48, VOCABULARY), ids(16, VOCABULARY, name="decoder_input_ids"))
_OPEN_PAIR = (
    Input("input_ids", (1, 48), "ids", VOCABULARY, {0: "batch", 1: "sequence"}),
    Input("decoder_input_ids", (1, 16), "ids", VOCABULARY, {0: "batch", 1: "written"}),
)
_TWO_SIDES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "max_position_embeddings": 256,
    "use_cache": False, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 4,
    "use_cache": False, "decoder_start_token_id": 0,
}  # fmt: skip


def _pair(name: str, kind: str, config: dict[str, Any], sample: bool = False, inputs: Any = _PAIR) -> Entry:
    """One text of 48 tokens, and scores of the next token after each of 16."""
    return Entry(name, "encoder-decoders", "transformers", f"{kind}ForConditionalGeneration", inputs, config, sample)


ENCODER_DECODERS = (
    _pair("t5", "T5", _T5, sample=True),
    _pair("t5-gated-open", "T5", {**_T5, "feed_forward_proj": "gated-gelu"}, inputs=_OPEN_PAIR),
    _pair("mt5", "MT5", _T5),
    _pair("umt5", "UMT5", _T5),
    _pair("bart", "Bart", _TWO_SIDES),
    _pair("mbart", "MBart", _TWO_SIDES),
    _pair("pegasus", "Pegasus", _TWO_SIDES),
    _pair("m2m100", "M2M100", _TWO_SIDES),
    _pair("blenderbot", "Blenderbot", _TWO_SIDES),
    _pair("plbart", "PLBart", _TWO_SIDES),
    _pair("prophetnet", "ProphetNet", {
        **USUAL, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "use_cache": False}),
    Entry("marian", "encoder-decoders", "transformers", "MarianMTModel", _PAIR,
          {**_TWO_SIDES, "decoder_vocab_size": VOCABULARY}),
)  # fmt: skip
