"""Classifiers of pictures: convolutional nets old and new, and vision transformers."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.entry import Entry, Input, image, open_image

VIT: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 384, "image_size": 128,
}  # fmt: skip


def _timm(name: str, family: str, source: str = "", size: int = 128, sample: bool = False, inputs: Any = (),
          **config: Any) -> Entry:  # fmt: skip
    """A model of timm for pictures of ``size``; ``img_size`` is passed where the model needs to know it."""
    return Entry(name, family, "timm", source or name, inputs or (image(size, name="x"),), config, sample)


def _conv(name: str, source: str = "", size: int = 128, **config: Any) -> Entry:
    return _timm(name, "convolutional", source, size, **config)


def _vit(name: str, source: str = "", size: int = 128, **config: Any) -> Entry:
    return _timm(name, "vision-transformers", source, size, **config)


CONVOLUTIONAL = (
    _conv("resnet18", sample=True),
    _conv("resnet18-open", "resnet18", inputs=(open_image(128, "x"),)),
    _conv("resnet18-odd", "resnet18", 107),
    _conv("resnext26", "resnext26ts"),
    _conv("resnet26d"),
    _conv("seresnet18", "legacy_seresnet18"),
    _conv("res2net", "res2net50_14w_8s"),
    _conv("resnest", "resnest14d"),
    _conv("sknet", "skresnet18"),
    _conv("ecaresnet", "ecaresnet26t"),
    _conv("wide-resnet-bottleneck", "gcresnext26ts"),
    _conv("regnetx", "regnetx_004"),
    _conv("regnety", "regnety_004"),
    _conv("nfnet", "dm_nfnet_f0", 96),
    _conv("densenet", "densenet121", 96),
    _conv("inception-v3", "inception_v3", 139),
    _conv("inception-resnet", "inception_resnet_v2", 139),
    _conv("xception", "legacy_xception", 107),
    _conv("dpn", "dpn48b"),
    _conv("dla", "dla34"),
    _conv("hrnet", "hrnet_w18_small"),
    _conv("cspdarknet", "cspdarknet53"),
    _conv("darknet53"),
    _conv("vovnet", "ese_vovnet19b_dw"),
    _conv("selecsls", "selecsls42b"),
    _conv("repvgg", "repvgg_a0"),
    _conv("mobilenetv3-small", "mobilenetv3_small_100"),
    _conv("mobilenetv4", "mobilenetv4_conv_small", inputs=(open_image(128, "x"),)),
    _conv("mnasnet", "mnasnet_100"),
    _conv("ghostnet", "ghostnet_100"),
    _conv("ghostnetv2", "ghostnetv2_100"),
    _conv("tinynet", "tinynet_d"),
    _conv("lcnet", "lcnet_050"),
    _conv("hardcorenas", "hardcorenas_a"),
    _conv("mixnet", "mixnet_s"),
    _conv("efficientnetv2", "efficientnetv2_rw_t"),
    _conv("efficientnet-lite", "efficientnet_lite0"),
    _conv("mobileone", "mobileone_s0"),
    _conv("fastvit", "fastvit_t8"),
    _conv("convnextv2", "convnextv2_atto"),
    _conv("convmixer", "convmixer_768_32", 96),
    _conv("inception-next", "inception_next_atto"),
    _conv("repghost", "repghostnet_050"),
    _conv("starnet", "starnet_s1"),
    _conv("rdnet", "rdnet_tiny", 96),
    _conv("hgnet", "hgnetv2_b0"),
    _conv("edgenext", "edgenext_xx_small"),
    _conv("focalnet", "focalnet_tiny_srf", 96),
    _conv("gcvit", "gcvit_xxtiny", 128, img_size=128),
)

VISION_TRANSFORMERS = (
    _vit("deit", "deit_tiny_patch16_224", img_size=128, depth=3),
    _vit("beit", "beit_base_patch16_224", img_size=128, depth=2, embed_dim=192, num_heads=3),
    _vit("eva02", "eva02_tiny_patch14_224", 126, img_size=126, depth=3),
    _vit("swin", "swin_tiny_patch4_window7_224", 224, sample=True, depths=(1, 1, 2, 1)),
    _vit("swinv2", "swinv2_tiny_window8_256", 256, depths=(1, 1, 2, 1)),
    _vit("cait", "cait_xxs24_224", img_size=128, depth=3),
    _vit("xcit", "xcit_nano_12_p16_224", img_size=128, depth=3),
    _vit("crossvit", "crossvit_tiny_240", 240),
    _vit("tnt", "tnt_s_legacy_patch16_224", 128, img_size=128, depth=3),
    _vit("visformer", "visformer_tiny", 128, img_size=128),
    _vit("volo", "volo_d1_224", 128, img_size=128),
    _vit("davit", "davit_tiny", 128),
    _vit("maxvit", "maxvit_pico_rw_256", 256),
    _vit("coatnet", "coatnet_pico_rw_224", 224),
    _vit("coat", "coat_lite_tiny", 128, img_size=128),
    _vit("convit", "convit_tiny", 128, img_size=128, depth=11),
    _vit("pit", "pit_ti_224", 224),
    _vit("efficientformerv2", "efficientformerv2_s0", 224),
    _vit("efficientvit", "efficientvit_b0", 128),
    _vit("efficientvit-msra", "efficientvit_m0", 224),
    _vit("tiny-vit", "tiny_vit_5m_224", 224),
    _vit("repvit", "repvit_m0_9", 128),
    _vit("shvit", "shvit_s1", 224),
    _vit("mobilevit", "mobilevit_xxs", 128),
    _vit("mobilevitv2", "mobilevitv2_050", 128),
    _vit("poolformer", "poolformer_s12", 128),
    _vit("metaformer", "caformer_s18", 96),
    _vit("sequencer", "sequencer2d_s", 96, img_size=96, layers=(1, 1, 1, 1)),
    _vit("mlp-mixer", "mixer_s32_224", 128, img_size=128, num_blocks=3),
    _vit("resmlp", "resmlp_12_224", 128, img_size=128, num_blocks=3),
    _vit("gmlp", "gmlp_ti16_224", 128, img_size=128, num_blocks=3),
    _vit("pvt-v2", "pvt_v2_b0", 128),
    _vit("levit", "levit_128s", 224),
    _vit("mvitv2", "mvitv2_tiny", 128, img_size=128),
    _vit("hiera", "hiera_tiny_224", 128, img_size=128),
    _vit("nextvit", "nextvit_small", 96),
    Entry("dinov2", "vision-transformers", "transformers", "Dinov2Model", (image(),), {**VIT, "patch_size": 16}),
    Entry("cvt", "vision-transformers", "transformers", "CvtModel", (image(),), {"depth": [1, 1, 2]}),
    Entry("swiftformer", "vision-transformers", "transformers", "SwiftFormerModel", (image(),),
          {"depths": [1, 1, 2, 1], "embed_dims": [32, 48, 96, 160]}),
    Entry("clip-vision", "vision-transformers", "transformers", "CLIPVisionModel", (image(),),
          {**VIT, "patch_size": 16}),
    Entry("siglip", "vision-transformers", "transformers", "SiglipVisionModel", (open_image(),),
          {**VIT, "patch_size": 16}),
    Entry("videomae", "vision-transformers", "transformers", "VideoMAEForVideoClassification",
          (Input("pixel_values", (1, 8, 3, 64, 64)),), {**VIT, "image_size": 64, "num_frames": 8}),
    Entry("timesformer", "vision-transformers", "transformers", "TimesformerModel",
          (Input("pixel_values", (1, 8, 3, 64, 64)),), {**VIT, "image_size": 64, "num_frames": 8}),
    Entry("vivit", "vision-transformers", "transformers", "VivitModel",
          (Input("pixel_values", (1, 8, 3, 64, 64)),), {**VIT, "image_size": 64, "num_frames": 8}),
)  # fmt: skip
