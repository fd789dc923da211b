"""Operators that the host runs with other packages: regular expressions of RE2, pictures through Pillow."""

from __future__ import annotations

import io
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from seeds import seeds

import weft
from weft.runtime.artifact import Artifact
from weft.support import patterns, pictures
from weft.support.errors import (
    ArtifactError,
    InputError,
    MissingExtra,
    ModelError,
    UserError,
    WeftError,
)

re2 = pytest.importorskip("re2")
Image = pytest.importorskip("PIL.Image")


HEAD = '<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 4]>\n'


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def matcher(pattern: str) -> weft.Executable:
    made = model("g (string[n] x) => (bool[n] y) { y = RegexFullMatch (x) }")
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("pattern", pattern))
    return weft.compile(made)


def test_matching_takes_linear_time() -> None:
    """A matcher that backtracks would take exponential time."""
    exe = matcher("(a|a)*(a+)+(a|aa)+b")
    text = "a" * 100_000
    assert exe(np.array([text, text + "b", "c"], object)).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a$", "a", "a\n"),  # the end of the text, not a place before a line end
        (r"\d+", "12", "٣٤"),  # digits of ASCII
        (r"\w", "w", "ä"),
        (r"\pL+", "äβ", "1"),
        ("(?s).", "\n", "ab"),
        (".", "ä", "\n"),
        (r"\Qa.c\E", "a.c", "abc"),
        ("(?i)straße", "STRAßE", "strasse"),
        ("", "", "a"),
        (r"\x{1F600}|[[:alpha:]]", "😀", "1"),
    ],
)
def test_the_syntax_is_that_of_re2(pattern: str, yes: str, no: str) -> None:
    assert matcher(pattern)(np.array([yes, no], object)).tolist() == [True, False]


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "a(?=b)", "(?<!a)b", "(?P=x)", "(", "a**b\\", "[z-a]", "a{2000}", "(?>a)"]
)
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(ModelError, match="not in the syntax of RE2"):
        matcher(pattern)


def test_strings_that_are_no_unicode() -> None:
    with pytest.raises(InputError) as found:
        matcher("a")(np.array(["\ud800"], object))
    assert found.value.code == "I004"


# ---- pictures --------------------------------------------------------------------------------------------------------

DECODER = "g (uint8[n] data) => (uint8[h, w, c] picture) { picture = ImageDecoder <pixel_format = FORM> (data) }"


def decoder(form: str = "RGB") -> weft.Executable:
    return weft.compile(model(DECODER.replace("FORM", f'"{form}"')))


def encoded(array: np.ndarray, kind: str = "PNG", mode: str | None = None, **options: Any) -> np.ndarray:
    out = io.BytesIO()
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(out, kind, **options)
    return np.frombuffer(out.getvalue(), np.uint8)


PIXELS = np.random.default_rng(0).integers(0, 256, (13, 7, 3), np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_pixels_of_lossless_formats(kind: str) -> None:
    data = encoded(PIXELS, kind)
    np.testing.assert_array_equal(decoder()(data), PIXELS)
    np.testing.assert_array_equal(decoder("BGR")(data), PIXELS[:, :, ::-1])
    gray = decoder("Grayscale")(data)
    assert gray.shape == (13, 7, 1)
    np.testing.assert_array_equal(gray[:, :, 0], np.asarray(Image.fromarray(PIXELS).convert("L")))


@pytest.mark.parametrize("mode", ["P", "L", "RGBA", "1", "LA"])
def test_other_kinds_of_pixels_become_those_asked_for(mode: str) -> None:
    """A picture with a palette gives its colours, not the places in the palette."""
    expected = np.asarray(Image.fromarray(PIXELS).convert(mode).convert("RGB"))
    np.testing.assert_array_equal(decoder()(encoded(PIXELS, mode=mode)), expected)


@pytest.mark.parametrize("form", ["RGB", "Grayscale"])
def test_what_cannot_be_decoded_is_empty(form: str) -> None:
    exe, whole = decoder(form), encoded(PIXELS)
    spoiled = whole.copy()
    spoiled[len(spoiled) // 2 :] ^= 255
    postscript = np.frombuffer(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n", np.uint8)
    for data in (whole[:0], whole[:9], whole[: len(whole) // 2], spoiled, np.zeros(100, np.uint8), postscript):
        made = exe(data)
        assert made.shape == (0, 0, 3 if form == "RGB" else 1)
    assert exe(whole).shape[:2] == (13, 7)


OPTIONS = {
    "PNG": ({},),
    "BMP": ({},),
    "TIFF": ({}, {"compression": "tiff_lzw"}, {"compression": "tiff_deflate"}, {"compression": "packbits"}),
    "PPM": ({},),
    "JPEG": ({}, {"progressive": True}),
    "WEBP": ({}, {"lossless": True}),
    "JPEG2000": ({},),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("kind", pictures.FORMATS)
def test_spoiled_pictures_are_decoded_or_empty(kind: str, seed: int) -> None:
    """Whatever stands in the file: no exception of the package reaches the caller."""
    rng, empty = np.random.default_rng(seed), 0
    for options in OPTIONS[kind]:
        try:
            whole = encoded(PIXELS, kind, **options)
        except (OSError, KeyError):
            pytest.skip(f"this Pillow writes no {kind}")
        for count in range(150):
            data = whole.copy()
            end = min(len(data), 80) if count % 2 else len(data)  # the heads of files have most of the traps
            for place in rng.integers(0, end, 1 + count % 5):
                data[place] = rng.choice((0, 1, 127, 255, int(data[place]) ^ 1 << int(rng.integers(8)), 40))
            data = data[: rng.integers(len(data) + 1)] if count % 7 == 0 else data
            height, width = pictures.size({"pixels": "RGB"}, data)
            made = pictures.decode({"pixels": "RGB"}, data)
            assert made.dtype == np.uint8 and made.shape == (height, width, 3)
            empty += not made.size
    assert empty > 10


@pytest.mark.parametrize(
    "error", [struct.error("x"), KeyError(1), TypeError("x"), IndexError(1), AssertionError(), ZeroDivisionError()]
)
def test_what_the_package_raises_is_no_picture(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise error

    pictures._decoded.cache_clear()
    monkeypatch.setattr(Image, "open", fail)
    assert decoder()(encoded(PIXELS)).shape == (0, 0, 3)
    pictures._decoded.cache_clear()


def test_a_picture_feeds_the_model() -> None:
    text = """g (uint8[n] data) => (float[c] mean) {
      picture = ImageDecoder (data)
      x = Cast <to = 1> (picture)
      mean = ReduceMean <keepdims = 0> (x, axes) }"""
    made = model(text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 1]), "axes"))
    np.testing.assert_allclose(weft.compile(made)(encoded(PIXELS)), PIXELS.mean((0, 1)), rtol=1e-5)


def test_runs_at_the_same_time_do_not_mix_pictures() -> None:
    exe = decoder()
    arrays = [np.full((5 + i, 4, 3), i, np.uint8) for i in range(6)]
    wrong: list[int] = []

    def run(i: int) -> None:
        data = encoded(arrays[i])
        wrong.extend(i for _ in range(20) if not np.array_equal(exe(data), arrays[i]))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_wrong_forms_of_pixels() -> None:
    with pytest.raises(ModelError, match="pixel_format is 'CMYK'"):
        decoder("CMYK")


# ---- packages that are missing ---------------------------------------------------------------------------------------


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns.re2_pattern.cache_clear()
    pictures._decoded.cache_clear()
    for name in ("re2", "PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(("make", "extra"), [(lambda: matcher("a*"), "text"), (decoder, "images")])
def test_a_missing_package_is_named(make: Any, extra: str, without_packages: None) -> None:
    with pytest.raises(UserError, match="is not installed") as found:
        make()
    assert f"weft[{extra}]" in str(found.value)


@pytest.mark.parametrize(("make", "extra"), [(lambda: matcher("a*"), "text"), (decoder, "images")])
def test_the_runtime_looks_for_packages_when_it_loads(make: Any, extra: str, tmp_path: Path, request: Any) -> None:
    path = tmp_path / "m.weft"
    make().save(path)
    request.getfixturevalue("without_packages")
    with pytest.raises(MissingExtra, match="is not installed") as found:
        weft.load_executable(path)
    assert found.value.hint == f"pip install 'weft[{extra}]'"


def changed(artifact: Artifact, **changes: Any) -> weft.Executable:
    """An executable whose program has other host operators, all changed alike."""
    hosts = tuple(replace(h, **changes) for h in artifact.program.hosts)
    return weft.Executable(replace(artifact, program=replace(artifact.program, hosts=hosts)))


def test_a_pattern_in_a_file_that_is_none() -> None:
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        changed(matcher("a*").artifact, attrs={"pattern": "("})


TEXT = {
    "matches": 'g (string[n] x) => (bool[n] y) { y = RegexFullMatch <pattern = "a+"> (x) }',
    "split": "g (string[n] x) => (string[n, m] y, int64[n] z) {"
    ' y, z = StringSplit <delimiter = "b", maxsplit = 1> (x) }',
    "concat": "g (string[n] x) => (string[n] y) { y = StringConcat (x, x) }",
    "normalize": 'g (string[n] x) => (string[m] y) { y = StringNormalizer <stopwords = ["a"]> (x) }',
    "cast": "g (string[n] x) => (float[n] y) { y = Cast <to = 1> (x) }",
    "show": "g (string[n] x) => (string[m] y) { z = Shape (x) y = Cast <to = 8> (z) }",
    "encode": "g (string[n] x) => (int64[n] y) {"
    ' y = ai.onnx.ml.LabelEncoder <keys_strings = ["a"], values_int64s = [1]> (x) }',
    "reshape": "g (string[n] x) => (string[k] y) { z = Shape (x) y = Reshape (x, z) }",
}
HOSTILE: list[dict[str, Any]] = [
    {"attrs": {}},
    {"attrs": dict.fromkeys(("delimiter", "maxsplit", "pattern", "case", "stopwords", "to", "keys", "values"), 3)},
    {"attrs": dict.fromkeys(("delimiter", "maxsplit", "pattern", "case", "stopwords", "to", "keys", "values"))},
    {"attrs": dict.fromkeys(("delimiter", "maxsplit", "pattern", "case", "stopwords", "to", "keys", "values"), ({},))},
    {"attrs": {"delimiter": 3, "maxsplit": "x"}},
    {"arguments": ()},
    {"arguments": ("float32",)},
    {"arguments": ("string",) * 3},
    {"arguments": ("nonsense",)},
    {"results": ()},
    {"results": ("float32",)},
    {"results": ("string",) * 3},
    {"results": ("int64", "int64")},
    {"results": ("nonsense",)},
    *({"name": name} for name in ("text_split", "text_take", "text_select", "picture_decode", "constant")),
]


@pytest.mark.parametrize("kind", TEXT)
def test_host_operators_of_changed_files_give_errors_of_weft(kind: str) -> None:
    """Or results of some kind; never the exceptions of their functions."""
    x = np.array(["a", "abc", "12"], object)
    artifact = weft.compile(onnx.parser.parse_model(HEAD + TEXT[kind])).artifact
    if kind not in ("reshape", "encode", "cast"):
        assert artifact.program.hosts
    with suppress(WeftError):
        weft.Executable(artifact)(x)
    refused = 0
    for changes in HOSTILE:
        try:
            changed(artifact, **changes)(x)
        except WeftError:  # also that of the executor, where a result has other elements than were planned
            refused += 1
    assert refused > 3 or not artifact.program.hosts
