"""On a CUDA device: the CPU's tokens in float64, and the short precisions run."""

from typing import Any

import fakes
import pytest

from fastdecode_lib import compare, load, translate
from fastdecode_lib.papers.double_token_decoding.systems import model_of
from fastdecode_lib.papers.experiment import Scale

pytestmark = pytest.mark.gpu

TEXTS = [text for text in fakes.own_sentences()["en"] if len(text) < 50][:8]
DECODERS = ("greedy", "beam:size=3", "jacobi", "gauss_seidel:block=3", "hybrid:block=3")


@pytest.mark.parametrize("decoder", DECODERS)
def test_tokens_equal_those_of_the_cpu(marian: Any, marian_folder: Any, decoder: str) -> None:
    model = load(str(marian_folder), device="cuda", dtype="float64")
    assert model.device.startswith("cuda")
    for text in TEXTS:
        found = translate(model, text, source="en", target="de", decoder=decoder)
        assert found.tokens == translate(marian, text, source="en", target="de", decoder=decoder).tokens


def test_the_bundled_model_equals_the_cpu() -> None:
    models = [load("tatoeba-small", device=device, dtype="float64") for device in ("cpu", "cuda")]
    for text in TEXTS[:4]:
        here, there = (translate(m, text, source="en", target="de", decoder="jacobi", max_length=40) for m in models)
        assert here.tokens == there.tokens


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_short_precisions_run(marian_folder: Any, dtype: str) -> None:
    model = load(str(marian_folder), device="cuda", dtype=dtype)
    for decoder in DECODERS:
        result = translate(model, TEXTS[0], source="en", target="de", decoder=decoder)
        assert result.tokens and result.trace.settings["dtype"] == dtype
        assert all(i.probabilities is None or (i.probabilities <= 1.001).all() for i in result.trace.iterations)


def test_auto_finds_the_device(marian_folder: Any) -> None:
    assert load(str(marian_folder)).device.startswith("cuda")
    with pytest.raises(ValueError, match="No such CUDA device here: got device='cuda:99'"):
        load(str(marian_folder), device="cuda:99")


def test_comparison_and_the_huggingface_baseline(marian_folder: Any) -> None:
    model = load(str(marian_folder), device="cuda", dtype="float64")
    frame = compare(
        model, TEXTS[:3], source="en", target="de", decoders=("greedy", "jacobi"), baselines=("hf",), runs=1,
        progress=False,
    )  # fmt: skip
    assert (frame["agreement"] == 1.0).all()


@pytest.mark.parametrize(
    ("preset", "decoder"),
    [
        ("bidirectional", "double_token"),
        ("triple", "double_token:size=3"),
        ("mask-predict", "mask_predict:iterations=3"),
    ],
)
def test_several_tokens_a_step_and_masks(preset: str, decoder: str) -> None:
    folder = str(model_of(preset, Scale.TINY).checkpoint.folder)
    here, there = (load(folder, device=device, engine="torch", dtype="float64") for device in ("cpu", "cuda"))
    for text in TEXTS[:4]:
        assert translate(there, text, decoder=decoder).tokens == translate(here, text, decoder=decoder).tokens
    for dtype in ("float16", "bfloat16"):
        assert translate(load(folder, device="cuda", dtype=dtype), TEXTS[0], decoder=decoder).tokens
