"""Our decoders inside `generate`: the same tokens as without them, whatever `generate` is asked for, or a clear refusal."""

import gc
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    ByT5Tokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessor,
    MarianMTModel,
    MaxTimeCriteria,
    StoppingCriteria,
    StopStringCriteria,
)
from transformers.generation.logits_process import (
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)
from transformers.generation.streamers import BaseStreamer

from fastdecode_lib import hf
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.core import Hypothesis
from fastdecode_lib.hf import drafting, generating, rows
from fastdecode_lib.laws.cases import LawBroken
from fastdecode_lib.laws.generate import (
    END,
    FUNCTIONAL,
    KINDS,
    PADDING,
    VOCABULARY,
    GenerateCase,
    PrefixCriterion,
    custom_generate_equals_generate,
    random_custom_generate,
    random_generate_case,
    random_module,
)
from fastdecode_lib.models.transformer import Transformer

CASES = 250


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_custom_generate_equals_generate(kind: int) -> None:
    for seed in range(kind, CASES, len(KINDS)):
        custom_generate_equals_generate(random_custom_generate(seed), random_generate_case(seed))


def test_the_cases_show_something() -> None:
    outputs: dict[str, set[tuple[int, ...]]] = {}
    for seed in range(60):
        case = random_generate_case(seed)
        found = case.run()
        rows = found if isinstance(found, torch.Tensor) else found.sequences
        outputs.setdefault(case.kind, set()).update(map(tuple, rows.tolist()))
    assert outputs.keys() == set(KINDS) and all(len(found) > 10 for found in outputs.values())


# ------------------------------------------------------------------------------------------------- broken twins


class FirstSlotOnly(hf.Choosing):
    """Calls processors at the first slot of a pass and forgets the drafted ones."""

    def process(self, scores: torch.Tensor, slots: np.ndarray, rows: np.ndarray, feeds: Any) -> torch.Tensor:
        processed = super().process(scores.clone(), slots, rows, feeds)
        firsts = np.cumsum([0, *(len(feed.tokens) for feed in feeds[:-1])])
        scores[firsts] = processed[firsts]
        return scores


class SamePrefix(hf.Choosing):
    """Calls processors at every slot with the settled tokens, as if no drafts stood between."""

    def process(self, scores: torch.Tensor, slots: np.ndarray, rows: np.ndarray, feeds: Any) -> torch.Tensor:
        class Blind:
            def __init__(self, feed: Any, known: tuple[int, ...]):
                self.tokens, self.slots, self.known = feed.tokens, feed.slots, known

            def prefix(self, index: int) -> tuple[int, ...]:
                return (self.known[-1:] * len(self.known[:1]) + self.known * 9)[: self.slots[index]]

        blind = [Blind(feed, (*feed.known, feed.tokens[0].item())) for feed in feeds]
        return super().process(scores, slots, rows, blind)


class PromptForgotten(hf.Choosing):
    """Calls processors with the new tokens alone, the start symbol repeated for the prompt."""

    def __init__(self, score: Any, processors: Any, prompts: list[list[int]], first: int, keep: bool):
        super().__init__(score, processors, [[END] * len(prompt) for prompt in prompts], first, keep)


class FirstRow(hf.Choosing):
    """Answers for the first row of a batch whatever row is asked for."""

    def process(self, scores: torch.Tensor, slots: np.ndarray, rows: np.ndarray, feeds: Any) -> torch.Tensor:
        return super().process(scores, slots, np.zeros_like(rows), feeds)


@pytest.mark.parametrize("twin", [FirstSlotOnly, SamePrefix, PromptForgotten, FirstRow])
def test_the_law_catches_a_broken_twin(twin: type) -> None:
    class Broken(hf.CustomGenerate):
        def choosing(self, *arguments: Any) -> hf.Choosing:
            return twin(*arguments)

    broken = 0
    for seed in range(40):
        try:
            custom_generate_equals_generate(Broken(random_custom_generate(seed).decoder), random_generate_case(seed))
        except LawBroken:
            broken += 1
    assert broken >= 3


class LateRow(rows.Row):
    """Asks the criteria once a pass, behind all that it settled."""

    def take(self, tokens: np.ndarray) -> Any:
        criteria, self.criteria = self.criteria, lambda ids, scores: torch.tensor([False])
        taken = super().take(tokens)
        self.criteria = criteria
        if self.hypothesis is None and criteria(self.ids[:, : self.length], None):
            self.hypothesis = self.sentence.hypothesis or Hypothesis((), None, "end")
        return taken


def test_the_law_catches_late_criteria(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "Row", LateRow)
    broken = 0
    for seed in range(60):
        try:
            custom_generate_equals_generate(random_custom_generate(seed), random_generate_case(seed))
        except (LawBroken, ValueError):
            broken += 1
    assert broken >= 3


# ---------------------------------------------------------------------------------------- the module's own tensors


def tensors_of(thing: Any) -> Iterator[torch.Tensor]:
    """Every tensor that a functional model holds."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, tuple | list):
        for part in thing:
            yield from tensors_of(part)
    elif hasattr(thing, "__dict__"):
        for part in vars(thing).values():
            yield from tensors_of(part)


@pytest.mark.parametrize("kind", FUNCTIONAL)
def test_the_functional_model_holds_no_weights_of_its_own(kind: str) -> None:
    module = random_module(kind, 0)
    network = Transformer.of_module(module)
    assert network is not None
    theirs = {tensor.untyped_storage().data_ptr() for tensor in [*module.parameters(), *module.buffers()]}
    ours = [tensor for tensor in tensors_of(network) if tensor.is_floating_point()]
    assert len(ours) > 40 and all(tensor.untyped_storage().data_ptr() in theirs for tensor in ours)
    assert all(
        any(tensor.data_ptr() == parameter.data_ptr() for tensor in ours)
        for name, parameter in module.named_parameters()
        if not ("embed_positions" in name and network.architecture.learned_positions)  # two rows are never read
    )


@pytest.mark.parametrize("kind", FUNCTIONAL)
def test_a_change_in_place_changes_the_output(kind: str) -> None:
    module, case = random_module(kind, 0), random_generate_case(0)
    ids = case.settings["input_ids"]
    custom, seen, shape = hf.window(width=4), set(), Architecture.from_config(module.config.to_dict())
    names = ["self_attn.v_proj", "encoder_attn.v_proj", *shape.inner_parts, "final_layer_norm"]
    changed = [f"model.decoder.layers.{layer}.{name}.weight" for layer in range(2) for name in names]
    changed += ["model.decoder.relative_positions.weight"] * shape.relative_positions
    for name in changed:
        with torch.no_grad():
            module.get_parameter(shape.stored_as(name)[0]).neg_()
        found = module.generate(input_ids=ids, max_new_tokens=12, custom_generate=custom)
        assert torch.equal(found, module.generate(input_ids=ids, max_new_tokens=12))
        seen.add(tuple(found.flatten().tolist()))
    assert len(seen) > 3


def test_a_module_with_changes_of_its_own_runs_through_its_forward() -> None:
    module, calls = random_module("marian", 2), []
    module.model.decoder.layers[0].fc1.register_forward_hook(lambda *_: calls.append(1))
    assert Transformer.of_module(module) is None
    case = GenerateCase(0, "marian", module, random_generate_case(0).settings)
    custom_generate_equals_generate(hf.gauss_seidel(3), case)
    assert calls
    for change in (
        lambda m: setattr(m.config, "activation_function", "tanh"),
        lambda m: m.model.decoder.layers[0].fc2.float(),
        lambda m: delattr(m.model.decoder.layers[0].fc2, "bias"),
        lambda m: setattr(m, "__class__", type("Mine", (MarianMTModel,), {})),
        lambda m: setattr(m.model.decoder.layers[0], "forward", m.model.decoder.layers[0].forward),
        lambda m: m.to("meta"),
    ):
        module = random_module("marian", 2)
        assert Transformer.of_module(module) is not None
        change(module)
        assert Transformer.of_module(module) is None


def test_a_module_is_left_as_it_was() -> None:
    for kind in KINDS:
        module = random_module(kind, 1)
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        module.generate(input_ids=torch.tensor([[4, 5, 6]]), max_new_tokens=6, custom_generate=hf.jacobi())
        assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_is_run_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, calls = random_module(kind, 1), []
    inputs = {"attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])}
    encoder = module.get_encoder()
    encoded = encoder(input_ids=torch.tensor([[4, 5, 6, 1], [7, 8, 9, 10]]), **inputs)
    own = type(encoder).forward  # T5's decoder is of the same class

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.extend([1] * (self is encoder))
        return own(self, *arguments, **named)

    monkeypatch.setattr(type(encoder), "forward", forward)
    monkeypatch.setattr(Transformer, "encode", lambda *_: calls.append(1))
    settings = inputs | {"encoder_outputs": encoded, "max_new_tokens": 9}
    custom_generate_equals_generate(hf.window(5), GenerateCase(0, kind, module, settings))
    assert not calls and (Transformer.of_module(module) is not None) == (kind in FUNCTIONAL)


def test_outputs_can_be_trained_on() -> None:
    module = random_module("marian", 0)
    found = module.generate(
        input_ids=torch.tensor([[4, 5, 6]]), max_new_tokens=6, custom_generate=hf.window(), return_dict_in_generate=True,
        output_scores=True,
    )  # fmt: skip
    weight = torch.ones(VOCABULARY, requires_grad=True)
    (weight[found.sequences].sum() + (found.scores[0].clamp(-9, 9) * weight).sum()).backward()
    assert weight.grad is not None


# ----------------------------------------------------------------------------------------- criteria and streamers


def repeating_module() -> Any:
    """A module that says the same token again and again, so that a window settles several tokens in a pass."""
    module = random_module("marian", 0)
    with torch.no_grad():
        module.final_logits_bias[0, 7] = 100
    return module


class Recording(StoppingCriteria, BaseStreamer):
    """A criterion and a streamer that remember what they were told; the criterion stops at a length."""

    def __init__(self, length: int):
        self.length = length
        self.asked: list[list[list[int]]] = []
        self.scores: list[Any] = []
        self.told: list[list[Any]] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.asked.append(input_ids.tolist())
        self.scores.append(scores)
        return torch.full((len(input_ids),), input_ids.shape[1] == self.length)

    def put(self, value: torch.Tensor) -> None:
        self.told.append(value.tolist())

    def end(self) -> None:
        self.told.append(["end"])


@pytest.mark.parametrize("custom", [None, hf.window(8), hf.jacobi(), hf.gauss_seidel(4), hf.hybrid(5)])
def test_criteria_and_streamers_follow_every_token(custom: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    step = Transformer.step
    monkeypatch.setattr(Transformer, "step", lambda *arguments: (passes.append(1), step(*arguments))[1])
    record = Recording(6)
    found = repeating_module().generate(
        input_ids=torch.tensor([[4, 5, 6]]), max_new_tokens=20, custom_generate=custom, stopping_criteria=[record],
        streamer=record, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    assert found.sequences.tolist() == [[END, 7, 7, 7, 7, 7]]
    assert record.asked == [[[END] + [7] * count] for count in range(1, 6)]
    assert [len(scores) for scores in record.scores] == [1, 2, 3, 4, 5]
    assert all(score.shape == (1, VOCABULARY) for score in record.scores[-1])
    assert record.told == [[[END]], [7], [7], [7], [7], [7], ["end"]]
    if custom is not None and custom.decoder.name != "gauss_seidel":
        assert len(passes) < 5, "nothing was settled in the middle of a pass"


def test_max_time() -> None:
    settings = {"input_ids": torch.tensor([[4, 5, 6], [7, 8, 9]]), "max_new_tokens": 9, "eos_token_id": END}
    for change in ({"max_time": 0.0}, {"stopping_criteria": [MaxTimeCriteria(1e6)]}):
        case = GenerateCase(0, "marian", random_module("marian", 0), settings | change)
        custom_generate_equals_generate(hf.window(4), case)


def test_stop_strings() -> None:
    import fakes

    tokenizer: Any = fakes.bart_tokenizer()
    module = random_module("bart", 3, vocab_size=len(tokenizer))
    settings = {
        "input_ids": torch.tensor([[70, 80, 90, END]]),
        "max_new_tokens": 30,
        "bad_words_ids": [[0], [1], [2], [3]],
    }
    text = tokenizer.decode(module.generate(**settings)[0, 1:])
    stop = [StopStringCriteria(tokenizer=tokenizer, stop_strings=[text[8:10]])]
    case = GenerateCase(0, "bart", module, settings | {"stopping_criteria": stop})
    custom_generate_equals_generate(hf.window(6), case)
    assert 1 < case.run().shape[1] < 20


def test_without_an_end_rows_go_to_the_limit() -> None:
    settings = {"input_ids": torch.tensor([[4, 5, 6], [7, 8, 9]]), "max_new_tokens": 9}
    module = random_module("marian", 0)
    module.generation_config.eos_token_id = None
    case = GenerateCase(0, "marian", module, settings)
    custom_generate_equals_generate(hf.window(4), case)
    assert case.run(hf.window(4)).shape == (2, 10)


# ------------------------------------------------------------------------------------------------------- refusals


class Stateful(LogitsProcessor):
    """Counts its calls."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores


ONE = torch.tensor([[4, 5, 6]])
TWO = torch.tensor([[4, 5, 6], [7, 8, 9]])


def filled_cache() -> Any:
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    cache.self_attention_cache.update(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    return cache


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 3}, "greedy decoding's output: got .*num_beams=3.*Pass num_beams=1, or leave custom_generate out"),
        ({"do_sample": True}, "got settings for sample .*do_sample=True.*Pass do_sample=False"),
        ({"do_sample": True, "num_beams": 2}, "got settings for beam sample .*Pass num_beams=1 and do_sample=False"),
        ({"num_return_sequences": 2}, "num_return_sequences.*got 2"),
        ({"prompt_lookup_num_tokens": 3}, "got settings for assisted generation.*a window drafts by itself"),
        ({"assistant_model": "itself"}, "got settings for assisted generation.*draft='prompt/recycled'"),
        ({"penalty_alpha": 0.5, "top_k": 4}, "got settings for contrastive search.*Leave custom_generate out"),
        ({"guidance_scale": 1.5}, "not remember earlier calls: got UnbatchedClassifierFreeGuidance.*Leave it out"),
        ({"logits_processor": [Stateful()]}, "got Stateful. .*set `stateless = True` on the class if"),
        (
            {"return_dict_in_generate": True, "output_attentions": True},
            "no steps of one token.*got output_attentions=True, output_hidden_states=False. Leave custom_generate out",
        ),
        ({"synced_gpus": True}, "equally many passes.*got synced_gpus=True. Leave custom_generate out"),
        ({"past_key_values": filled_cache}, "empty cache: got one with 3 positions. Give decoder_input_ids"),
        (
            {"decoder_input_ids": torch.tensor([[END, 4]]), "decoder_attention_mask": torch.tensor([[0, 1]])},
            r"without padding: got \[\[2, 4\]\]. Give the rows prompts of the same length",
        ),
        ({"attention_mask": torch.tensor([[0, 0, 0]])}, "source without tokens .* got a row of zeros .*Leave that sentence"),
        (
            {"input_ids": TWO, "stopping_criteria": [Recording(3)]},
            "neither remember earlier calls nor compare rows: got Recording for a batch of 2. Set `stateless = True`",
        ),
        ({"input_ids": TWO, "streamer": Recording(0)}, "one sentence: got a batch of 2. Give one sentence at a time"),
        (
            {"input_ids": TWO, "stopping_criteria": [PrefixCriterion()], "eos_token_id": None},
            "goes on with rows that were stopped: got a batch of 2 with PrefixCriterion and no eos_token_id. Give eos",
        ),
        (
            {"max_new_tokens": 60, "suppress_tokens": [END]},
            "output is too long: got 49 tokens and no end, as many as max_position_embeddings allows. Lower max_new_tokens",
        ),
    ],
)  # fmt: skip
def test_refusals(settings: dict[str, Any], message: str) -> None:
    module = random_module("marian", 1)
    settings = {"input_ids": ONE, "num_beams": 1, "do_sample": False, "max_new_tokens": 5} | settings
    if settings.get("assistant_model"):
        settings["assistant_model"] = module
    if callable(settings.get("past_key_values")):
        settings["past_key_values"] = settings["past_key_values"]()
    with pytest.raises(ValueError, match=f"(?s){message}"):
        module.generate(**settings, custom_generate=hf.window(4))


def test_refused_models() -> None:
    with pytest.raises(
        ValueError, match="encoder-decoder models: got GPT2LMHeadModel, which has no encoder. Leave it out"
    ):
        config = GPT2Config(vocab_size=VOCABULARY, n_embd=8, n_layer=1, n_head=2, n_positions=32)
        GPT2LMHeadModel(config).eval().generate(input_ids=ONE, max_new_tokens=4, custom_generate=hf.window())
    with pytest.raises(ValueError, match=r"training mode.* got training=True. Call model.eval\(\) first"):
        random_module("marian", 0).train().generate(input_ids=ONE, max_new_tokens=4, custom_generate=hf.window())
    with pytest.raises(ValueError, match="several candidates in one pass.*row by row. Use a single candidate"):
        random_module("bart", 0).generate(
            input_ids=ONE, max_new_tokens=4, custom_generate=hf.decoder("window:draft=recycled|pool")
        )
    squeezed = torch.tensor([[END, PADDING, 5]])
    with pytest.raises(ValueError, match="without padding: got .*Give the rows prompts"):
        random_module("m2m_100", 0).generate(
            input_ids=ONE, decoder_input_ids=squeezed, max_new_tokens=4, custom_generate=hf.window()
        )


def test_a_criterion_that_answers_for_other_rows() -> None:
    class ThreeRows(StoppingCriteria):
        stateless = True

        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            return torch.zeros(3, dtype=torch.bool)

    with pytest.raises(ValueError, match="row by row: got 3 answers for one row. Answer for the rows of input_ids"):
        random_module("marian", 0).generate(
            input_ids=TWO, max_new_tokens=4, stopping_criteria=[ThreeRows()], custom_generate=hf.window(3)
        )


@pytest.mark.parametrize("kind", ["bart", "t5", "marian"])
def test_a_module_that_was_used_is_freed(kind: str, tmp_path: Path) -> None:
    random_module(kind, 5, vocab_size=384).float().save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    module = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    module.generate(
        input_ids=TWO, num_beams=1, do_sample=False, max_new_tokens=4, custom_generate=hf.window(3, "recycled/pad")
    )
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("spec", ["greedy", "beam", "beam:size=2"])
def test_decoders_that_generate_has_itself(spec: str) -> None:
    with pytest.raises(ValueError, match=f"got '{spec[:4]}.*Use one of .*gauss_seidel.*leave custom_generate out"):
        hf.decoder(spec)


def test_decoders_by_name() -> None:
    assert hf.decoder("gauss_seidel:block=4") == hf.gauss_seidel(4)
    assert hf.decoder("hybrid") == hf.hybrid() and hf.decoder("jacobi:ratio=2.0") == hf.jacobi(ratio=2.0)
    assert hf.decoder("window:width=5,draft=prompt/recycled") == hf.window(5, "prompt/recycled")
    with pytest.raises(ValueError, match="Unknown decoder: got 'windows'. Did you mean 'window'"):
        hf.decoder("windows")
    with pytest.raises(ValueError, match="width >= 1, got 0"):
        hf.window(0)
    with pytest.raises(ValueError, match="nowhere is not a readable safetensors file: No such file"):
        hf.window(table="nowhere")
    for draft, problem in (
        ("model,model=single-l2r", "needs a model that drafts, got none"),
        ("head", "a draft head, got none"),
    ):
        with pytest.raises(ValueError, match=problem):
            random_module("marian", 0).generate(
                input_ids=ONE, max_new_tokens=4, custom_generate=hf.decoder(f"window:draft={draft}")
            )
    with pytest.raises(ValueError, match="needs the model's hidden vectors: got Bart.*Use draft=ngram"):
        random_module("bart", 0).generate(input_ids=ONE, max_new_tokens=4, custom_generate=hf.window(draft="head"))


def test_every_processor_of_transformers_is_known_or_refused() -> None:
    """A processor that a new version brings is refused until somebody has looked at it."""
    from transformers.generation import logits_process

    names = {
        name
        for name, kind in vars(logits_process).items()
        if isinstance(kind, type) and issubclass(kind, LogitsProcessor) and kind is not LogitsProcessor
    }
    known = {name for listed in private.LOOKS_AT.values() for name in listed.split()}
    assert known | set(private.ACTS) <= names and not known & set(private.ACTS)
    for kind in (SynthIDTextWatermarkLogitsProcessor, UnbatchedClassifierFreeGuidanceLogitsProcessor):
        with pytest.raises(ValueError, match=f"got {kind.__name__}"):
            private.looks_at(kind.__new__(kind))


def test_a_subclass_of_a_known_processor_is_not_known() -> None:
    from transformers import LogitNormalization

    class Mine(LogitNormalization):
        pass

    with pytest.raises(ValueError, match="got Mine"):
        private.looks_at(Mine())


# -------------------------------------------------------------------------------------------- the bundled model


def test_the_bundled_model() -> None:
    """The README's example, with and without a draft table: the text that plain `generate` gives."""
    import fakes
    from transformers import AutoTokenizer

    from fastdecode_lib.checkpoints.hub import find_checkpoint

    folder = find_checkpoint("tatoeba-small").folder
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    module = MarianMTModel.from_pretrained(folder, dtype=torch.float64)
    inputs = tokenizer(
        [f">>deu<< {text}" for text in fakes.own_sentences()["en"][:3]], return_tensors="pt", padding=True
    )
    expected = module.generate(**inputs)
    table = str(folder / "draft-tables" / "en-de.safetensors")
    for custom in (hf.window(width=8), hf.window(width=5, table=table), hf.gauss_seidel(block=3, packed=True)):
        assert torch.equal(module.generate(**inputs, custom_generate=custom), expected)


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Any, dict[str, Any], list[Any]]:
    """The bundled model in float32 with some sentences, and the decoders that it is decoded with, as they are resolved."""
    import fakes
    from transformers import AutoTokenizer

    from fastdecode_lib.checkpoints.hub import find_checkpoint

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = find_checkpoint("tatoeba-small").folder
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    texts = [f">>deu<< {text}" for text in fakes.own_sentences()["en"][:3]]
    chosen: list[Any] = []
    check = generating.check_fits
    monkeypatch.setattr(
        generating, "check_fits", lambda decoder, network: (chosen.append(decoder), check(decoder, network))
    )
    return MarianMTModel.from_pretrained(folder), tokenizer(texts, return_tensors="pt", padding=True), chosen


def test_what_pays_is_found(bundled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without arguments: the table of the sources' direction, or else greedy decoding, said once."""
    module, inputs, chosen = bundled
    one = {name: tensor[:1] for name, tensor in inputs.items()}
    expected, first = module.generate(**inputs), module.generate(**one)
    for _ in range(2):
        assert torch.equal(module.generate(**one, custom_generate=hf.window()), first)
        assert torch.equal(module.generate(**inputs, custom_generate=hf.window()), expected)
    assert len(chosen) == 4 and len({id(decoder.experience) for decoder in chosen}) == 1, (
        "experience is kept between calls"
    )
    assert chosen[0].name == "auto" and chosen[0].experience.passes > 0
    assert (chosen[0].drafts.table.about["source"], chosen[0].drafts.table.about["target"]) == ("en", "de")
    assert torch.equal(module.generate(**inputs, custom_generate=hf.window(4, "ngram+lexicon+head")), expected)
    assert chosen[-1].drafts.head is not None
    monkeypatch.setattr(drafting, "directions_with_tables", lambda *_: [])
    private.notes(module)["found"].clear()
    with pytest.warns(UserWarning, match="No drafts are known for this model .* got .*tatoeba-small.* Run fastdecode"):
        assert torch.equal(module.generate(**inputs, custom_generate=hf.window()), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(module.generate(**inputs, custom_generate=hf.window()), expected)
    assert chosen[-1] == drafting.GREEDY


def test_a_module_with_another_vocabulary_has_no_drafts_of_its_checkpoint(bundled: Any) -> None:
    module, inputs, _ = bundled
    module.resize_token_embeddings(16_010)
    expected = module.eval().generate(**inputs)
    for custom in (hf.window(4), hf.window()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(module.generate(**inputs, custom_generate=custom), expected)


def test_loaded_drafts_of_few_calls_are_kept(bundled: Any) -> None:
    from fastdecode_lib.checkpoints.hub import find_checkpoint

    module, inputs, _ = bundled
    head = str(find_checkpoint("tatoeba-small").folder / "draft-head.safetensors")
    for _ in range(drafting.KEPT + 2):
        module.generate(**inputs, custom_generate=hf.window(3, "head", head=head))
    assert len(private.notes(module)["found"]["resolved"]) == drafting.KEPT


def test_what_was_measured_is_found(bundled: Any) -> None:
    from fastdecode_lib.checkpoints.hub import find_checkpoint
    from fastdecode_lib.drafts.finding import choice_file
    from fastdecode_lib.store import write_table

    module, inputs, chosen = bundled
    expected = module.generate(**inputs)
    file = choice_file(find_checkpoint("tatoeba-small").fingerprint, ("en", "de"), 8)
    write_table(file, [], {"lossless": {"float32": ["window:width=2,draft=ngram", "quantised"]}})
    assert torch.equal(module.generate(**inputs, custom_generate=hf.window()), expected)
    assert chosen[-1].width == 2 and chosen[-1].drafts.written == "ngram"
    write_table(file, [], {"lossless": {"float32": ["greedy", "exact"]}})
    private.notes(module)["found"].clear()
    assert torch.equal(module.generate(**inputs, custom_generate=hf.window()), expected)
    assert chosen[-1] == drafting.GREEDY


def test_without_a_network_of_ours_nothing_is_slower() -> None:
    module = random_module("bart", 0)
    with pytest.warns(UserWarning, match="got a module, which is decoded greedily"):
        found = module.generate(input_ids=TWO, max_new_tokens=6, custom_generate=hf.window())
    assert torch.equal(found, module.generate(input_ids=TWO, max_new_tokens=6))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "marian",
            "model.decoder.layers.0.fc1.weight model.decoder.layers.1.fc2.bias "
            "model.decoder.layers.1.encoder_attn.v_proj.weight model.decoder.layers.0.self_attn_layer_norm.weight",
        ),
        (
            "t5",
            "decoder.block.0.layer.2.DenseReluDense.wi.weight decoder.block.1.layer.1.EncDecAttention.v.weight "
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight decoder.block.0.layer.0.layer_norm.weight",
        ),
    ],
    ids=["marian", "t5"],
)
def test_packed_weights_follow_the_module(kind: str, names: str) -> None:
    """Also where a change leaves no trace: through ``.data``."""
    module, ids = random_module(kind, 0).float(), random_generate_case(0).settings["input_ids"]
    seen = set()
    for name in names.split():
        module.get_parameter(name).data.neg_()
        found = module.generate(input_ids=ids, max_new_tokens=12, custom_generate=hf.window(4))
        assert torch.equal(found, module.generate(input_ids=ids, max_new_tokens=12))
        assert private.notes(module)["packed"][0] is not None
        seen.add(tuple(found.flatten().tolist()))
    assert len(seen) > 1
