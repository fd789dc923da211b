"""Pictures to more than a class: detectors, segmenters, depth, super-resolution, flow, diffusion, video."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.entry import Entry, Input, image, open_image

_X = "x"
_VIT: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 384, "image_size": 128,
    "patch_size": 16,
}  # fmt: skip


def _net(name: str, family: str, source: str, *inputs: Input, sample: bool = False, **config: Any) -> Entry:
    return Entry(name, family, "nets", f"pictures:{source}", inputs, config, sample)


def _model(name: str, family: str, source: str, *inputs: Input, sample: bool = False, **config: Any) -> Entry:
    return Entry(name, family, "transformers", source, inputs, config, sample)


def _diffuser(
    name: str, source: str, *inputs: Input, method: str = "forward", sample: bool = False, **config: Any
) -> Entry:
    return Entry(name, "diffusion", "diffusers", source, inputs, config, sample, method)


_PAIR = (image(128, name="first"), image(128, name="second"))
_TIME = Input("timestep", (1,), "ids", 1000)
_NOISE = Input("sample", (1, 4, 32, 32))
_TEXT = Input("encoder_hidden_states", (1, 16, 64))

DENSE = (
    _net("espcn", "super-resolution", "espcn", image(96, 1, name=_X)),
    _net("espcn-open", "super-resolution", "espcn",
         Input(_X, (1, 1, 96, 96), open={0: "batch", 2: "height", 3: "width"}), scale=2),
    _net("edsr", "super-resolution", "edsr", image(64, name=_X), sample=True),
    _net("rcan", "super-resolution", "rcan", image(96, name=_X)),
    _net("esrgan", "super-resolution", "esrgan", image(48, name=_X)),
    _model("swin2sr", "super-resolution", "Swin2SRForImageSuperResolution", image(64), image_size=64, embed_dim=60,
           depths=[2, 2], num_heads=[6, 6], window_size=8, upscale=2),
    _net("unet", "segmenters", "unet", image(128, name=_X)),
    _net("unet-bilinear", "segmenters", "unet", open_image(128, _X), transposed=False),
    _net("unet-3d", "segmenters", "unet", Input(_X, (1, 1, 32, 48, 48)), width=12, dims=3),
    _net("deeplab", "segmenters", "deeplab", image(160, name=_X)),
    _net("pspnet", "segmenters", "pspnet", image(128, name=_X)),
    _model("segformer", "segmenters", "SegformerForSemanticSegmentation", image(), depths=[1, 1, 1, 1],
           decoder_hidden_size=128),
    _model("beit-upernet", "segmenters", "BeitForSemanticSegmentation", image(), **{**_VIT, "num_hidden_layers": 4},
           out_indices=[1, 2, 3, 4]),
    _model("mobilenetv2-deeplab", "segmenters", "MobileNetV2ForSemanticSegmentation", image(), depth_multiplier=0.5),
    _model("mobilevit-deeplab", "segmenters", "MobileViTForSemanticSegmentation", image()),
    _net("monodepth", "depth", "monodepth", image(128, name=_X)),
    _model("glpn", "depth", "GLPNForDepthEstimation", image(), depths=[1, 1, 1, 1], decoder_hidden_size=32),
    _model("dpt", "depth", "DPTForDepthEstimation", image(), **_VIT, backbone_out_indices=[0, 1, 2, 3],
           neck_hidden_sizes=[32, 48, 64, 64], fusion_hidden_size=64),
    _net("raft", "flow", "raft", *_PAIR),
    _net("pwc", "flow", "pwc", *_PAIR),
    _net("yolo", "detectors", "yolo", image(160, name=_X), sample=True),
    _net("yolo-open", "detectors", "yolo", open_image(160, _X)),
    _net("ssd", "detectors", "ssd", image(160, name=_X)),
    _net("hourglass", "detectors", "hourglass", image(128, name=_X)),
    _model("yolos", "detectors", "YolosForObjectDetection", Input("pixel_values", (1, 3, 128, 128)),
           **{**_VIT, "image_size": [128, 128]}, num_detection_tokens=20),
    _model("vitpose", "detectors", "VitPoseForPoseEstimation", Input("pixel_values", (1, 3, 256, 192))),
    _model("rt-detr", "detectors", "RTDetrForObjectDetection", image(160), decoder_layers=1, num_queries=30,
           num_denoising=0),
    _net("dcgan", "generators", "dcgan", Input(_X, (1, 100))),
    _net("stylegan", "generators", "stylegan", Input("z", (1, 64))),
    _net("r2plus1d", "video", "r2plus1d", Input(_X, (1, 3, 8, 64, 64))),
    _net("c3d", "video", "c3d", Input(_X, (1, 3, 8, 48, 48)), sample=True),
    _net("crnn", "reading", "crnn", Input(_X, (1, 1, 32, 128))),
    _model("trocr-like", "reading", "ViTModel", open_image(128), **_VIT),
)  # fmt: skip

DIFFUSION = (
    _diffuser("unet2d", "UNet2DModel", Input("sample", (1, 3, 32, 32)), _TIME, sample_size=32, layers_per_block=1,
              block_out_channels=[32, 64, 64], down_block_types=["DownBlock2D", "AttnDownBlock2D", "DownBlock2D"],
              up_block_types=["UpBlock2D", "AttnUpBlock2D", "UpBlock2D"]),
    _diffuser("unet2d-condition", "UNet2DConditionModel", _NOISE, _TIME, _TEXT, sample=True, sample_size=32,
              layers_per_block=1, block_out_channels=[64, 128], cross_attention_dim=64, attention_head_dim=8,
              down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
              up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"]),
    _diffuser("unet1d", "UNet1DModel", Input("sample", (1, 14, 64)), _TIME, in_channels=14, out_channels=14,
              time_embedding_type="positional", use_timestep_embedding=True, act_fn="mish", extra_in_channels=0,
              down_block_types=["DownResnetBlock1D", "DownResnetBlock1D"], block_out_channels=[32, 64],
              up_block_types=["UpResnetBlock1D"], mid_block_type="MidResTemporalBlock1D",
              out_block_type="OutConv1DBlock",
              layers_per_block=1, flip_sin_to_cos=False, freq_shift=1, downsample_each_block=False),
    _diffuser("vae-encode", "AutoencoderKL", image(64, name=_X), method="_encode", block_out_channels=[32, 64],
              down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=4),
    _diffuser("vae-decode", "AutoencoderKL", Input("z", (1, 4, 32, 32)), method="_decode", block_out_channels=[32, 64],
              down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=4),
    _diffuser("tiny-vae", "AutoencoderTiny", Input(_X, (1, 4, 16, 16)), method="decode"),
    _diffuser("dit", "DiTTransformer2DModel", Input("hidden_states", (1, 4, 16, 16)), _TIME,
              Input("class_labels", (1,), "ids", 100), num_attention_heads=4, attention_head_dim=32, in_channels=4,
              num_layers=2, sample_size=16, num_embeds_ada_norm=100),
    _diffuser("sd3", "SD3Transformer2DModel", Input("hidden_states", (1, 4, 16, 16)), _TEXT,
              Input("pooled_projections", (1, 64)), _TIME, sample_size=16, in_channels=4, num_layers=2,
              attention_head_dim=32, num_attention_heads=4, joint_attention_dim=64, caption_projection_dim=128,
              pooled_projection_dim=64, out_channels=4),
    _diffuser("controlnet", "UNet2DConditionModel", _NOISE, _TIME, _TEXT, sample_size=32, layers_per_block=1,
              block_out_channels=[32, 64], cross_attention_dim=64, attention_head_dim=8, norm_num_groups=8,
              use_linear_projection=True, down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
              up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]),
    _diffuser("unet3d", "UNet3DConditionModel", Input("sample", (1, 4, 4, 16, 16)), _TIME, _TEXT, sample_size=16,
              layers_per_block=1, block_out_channels=[32, 64], cross_attention_dim=64, attention_head_dim=8,
              norm_num_groups=8, down_block_types=["CrossAttnDownBlock3D", "DownBlock3D"],
              up_block_types=["UpBlock3D", "CrossAttnUpBlock3D"]),
)  # fmt: skip
