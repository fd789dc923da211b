"""Sound: speech recognition, audio, vocoders, separation."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.entry import Entry, Input, ids

_WAVE = Input("input_values", (1, 8000))
_WAV2VEC: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 384, "vocab_size": 32,
    "conv_dim": [64] * 7, "num_conv_pos_embeddings": 32, "num_conv_pos_embedding_groups": 8,
}  # fmt: skip


def _model(name: str, family: str, source: str, *inputs: Input, sample: bool = False, method: str = "forward",
           **config: Any) -> Entry:  # fmt: skip
    return Entry(name, family, "transformers", source, inputs, config, sample, method)


def _net(name: str, family: str, source: str, *inputs: Input, sample: bool = False, **config: Any) -> Entry:
    return Entry(name, family, "nets", f"sound:{source}", inputs, config, sample)


_WHISPER: dict[str, Any] = {
    "vocab_size": 1000, "d_model": 192, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "max_source_positions": 200,
    "num_mel_bins": 80, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip

SOUND = (
    _model("whisper", "speech", "WhisperForConditionalGeneration", Input("input_features", (1, 80, 400)),
           ids(12, 1000, "decoder_input_ids"), **_WHISPER),
    _model("wav2vec2", "speech", "Wav2Vec2ForCTC", _WAVE, sample=True, **_WAV2VEC),
    _model("hubert", "speech", "HubertForCTC", _WAVE, **_WAV2VEC),
    _model("wavlm", "speech", "WavLMForCTC", _WAVE, **_WAV2VEC),
    _model("sew", "speech", "SEWForCTC", _WAVE, **_WAV2VEC, conv_kernel=[10, 3, 3, 3, 3, 2, 2],
           conv_stride=[5, 2, 2, 2, 2, 2, 2], squeeze_factor=2),
    _model("unispeech", "speech", "UniSpeechForCTC", _WAVE, **_WAV2VEC),
    _model("data2vec-audio", "speech", "Data2VecAudioForCTC", _WAVE, **{**_WAV2VEC, "num_conv_pos_embeddings": 5,
                                                                         "conv_pos_kernel_size": 19}),
    _model("wav2vec2-conformer", "speech", "Wav2Vec2ConformerForCTC", _WAVE, **_WAV2VEC,
           position_embeddings_type="rotary"),
    _model("ast", "audio", "ASTForAudioClassification", Input("input_values", (1, 256, 64)), hidden_size=192,
           num_hidden_layers=2, num_attention_heads=3, intermediate_size=384, max_length=256, num_mel_bins=64),
    _model("audio-spectrogram-siglip", "audio", "SiglipVisionModel", Input("pixel_values", (1, 3, 96, 96)),
           hidden_size=192, num_hidden_layers=2, num_attention_heads=3, intermediate_size=384, image_size=96),
    _model("dac-decode", "audio", "DacModel", Input("hidden_state", (1, 128, 24)), method="decoder", hidden_size=128,
           decoder_hidden_size=256, encoder_hidden_size=16),
    _model("speecht5-hifigan", "vocoders", "SpeechT5HifiGan", Input("spectrogram", (1, 32, 80)),
           upsample_initial_channel=128),
    _model("univnet", "vocoders", "UnivNetModel", Input("input_features", (1, 24, 100)),
           Input("noise_sequence", (1, 24, 64)), model_hidden_channels=16),
    _model("fastspeech2-hifigan", "vocoders", "FastSpeech2ConformerHifiGan", Input("spectrogram", (1, 32, 80)),
           upsample_initial_channel=128),
    _net("hifigan", "vocoders", "hifigan", Input("x", (1, 80, 32)), sample=True),
    _net("hifigan-open", "vocoders", "hifigan", Input("x", (1, 80, 32), open={2: "frames"})),
    _net("melgan", "vocoders", "melgan", Input("x", (1, 80, 32))),
    _net("wavenet", "vocoders", "wavenet", Input("x", (1, 1, 2000))),
    _net("conv-tasnet", "audio", "conv_tasnet", Input("x", (1, 1, 8000))),
    _net("demucs", "audio", "demucs", Input("x", (1, 2, 8192))),
    _net("crn", "audio", "crn", Input("x", (1, 1, 50, 161))),
    _net("deepspeech", "speech", "deepspeech", Input("x", (1, 1, 100, 80))),
    _net("quartznet", "speech", "quartznet", Input("x", (1, 64, 300))),
    _net("ds-cnn", "audio", "keywords", Input("x", (1, 1, 49, 10))),
    _net("tcn", "audio", "temporal", Input("x", (1, 8, 400))),
    _net("tacotron", "speech", "tacotron", ids(40, 100, "text")),
)  # fmt: skip
