"""Cases of the ONNX suite that Weft does not pass, by reason.

Patterns stand for whole names of cases, without ``test_`` in front and the device behind. All cases are computed; those
of ``INEXACT`` differ from the expected values.
"""

from __future__ import annotations

INEXACT: dict[str, str] = {
    # tests/frontends/test_random_operators.py checks the distributions.
    "bernoulli.*": "the numbers are drawn by another generator, and the specification leaves the generator open",
    "training_dropout(_default)?(_mask)?": "the same",
    "attention_4d_causal_fp16.*": "the reference rounds every step to float16; Weft computes in float32",
    "dft_inverse(_opset19)?": "where the result is 0 the reference leaves 2e-7, and the suite allows 1e-7",
}

ALWAYS: tuple[str, ...] = (
    # Cases that failed once.
    "div_uint",
    "bitshift_",
    "mod_.*fmod_0",
    "attention_(3d|4d)_gqa",
    "attention_.*window",
    "gru_|lstm_|rnn_",
    "cast_.*FLOAT8|cast_.*INT2|cast_.*FLOAT4",
    "sce_mean_weight",
    "maxunpool",
    "antialias",
)
