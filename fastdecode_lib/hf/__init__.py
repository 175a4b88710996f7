"""Our lossless parallel decoders inside Hugging Face's `generate`.

>>> from fastdecode_lib import hf
>>> model.generate(**inputs, num_beams=1, custom_generate=hf.window())

`generate` prepares the encoder's pass, the prompt, logits processors and stopping criteria. The loop over passes is ours, and
its tokens are greedy decoding's. Marian, mBART, M2M-100 / NLLB, T5 and mT5 run whole batches: in float32 on a CPU on the
compiled kernels, with a copy of the weights that is renewed when they change; otherwise on the functional transformer, with the
module's own tensors. Other encoder-decoders, and modules changed in place (adapters, hooks, other activations), run through
their own forward, one row at a time. Before a module is used, and after each change of it, passes are compared with its own
single steps on the present sentence, and a module for which they differ is refused. In half precision rounding may decide
between the two best tokens; a warning says where.

Draft tables, heads and the choices of `fastdecode speedup` are found by the checkpoint that the module was loaded from. They
affect only the speed: a module that was trained further has its own tokens.

Logits processors are called at every slot of a pass with that slot's own prefix, so that they must not remember earlier calls:
those of transformers that do not are known here, others are accepted if they have ``stateless = True``. Stopping criteria and
streamers are called after every settled token, row by row; for a batch, criteria of your own need ``stateless = True`` too.
For ``stop_strings``, whose tokenizer `generate` does not pass on, give ``stopping_criteria=[StopStringCriteria(tokenizer,
strings)]``. With ``return_dict_in_generate``, ``past_key_values`` is None.
"""

from dataclasses import replace

from fastdecode_lib import registry
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.hf.choosing import Choosing as Choosing
from fastdecode_lib.hf.generating import CustomGenerate


def window(
    width: int | None = None, draft: str = "auto", candidates: int = 3, *, packed: bool = True, **files: str | None
) -> "CustomGenerate":
    """`decoding.window.Window`, as `Window.of`; without arguments, the fastest decoder known for the model and batch size.

    `files` are those of `Window.of`: ``table``, ``head``, ``model`` and any others. The fastest decoder known is the choice of
    `fastdecode speedup` on this machine, or else `decoding.auto.Auto` if there is a draft table, or else greedy decoding, with one
    warning.
    """
    if hasattr(width, "generate"):
        raise TypeError(
            "hf.window makes what generate takes: got the call of generate itself. Write custom_generate=hf.window()."
        )
    chosen = Window.of(8 if width is None else width, draft, candidates, **files)
    if width is None and (draft, candidates) == ("auto", 3) and not any(files.values()):
        return CustomGenerate(None, packed)
    return decoder(chosen, packed=packed)


def jacobi(ratio: float = 1.2, extra: int = 5, *, packed: bool = True) -> "CustomGenerate":
    """`decoding.jacobi.Jacobi`."""
    return decoder(Jacobi(ratio, extra), packed=packed)


def gauss_seidel(block: int = 3, *, packed: bool = True) -> "CustomGenerate":
    """`decoding.jacobi.GaussSeidel`."""
    return decoder(GaussSeidel(block), packed=packed)


def hybrid(block: int = 3, length: int | None = None, *, packed: bool = True) -> "CustomGenerate":
    """`decoding.jacobi.Hybrid`."""
    return decoder(Hybrid(block, length), packed=packed)


def decoder(spec: registry.Spec, *, packed: bool = True) -> "CustomGenerate":
    """Any lossless parallel decoder of the registry as ``custom_generate``.

    Parameters
    ----------
    spec : str or Decoder
        Spec as on the command line: ``"window:width=5,draft=prompt/recycled"``.
    packed : bool
        Run on the compiled kernels if they support the module; otherwise always on the module's own tensors.

    Raises
    ------
    ValueError
        If there is no such decoder, or `generate` has it itself.
    """
    parsed = registry.decoder(spec)
    if not (parsed.lossless and hasattr(parsed, "sentences")):
        parallel = [name for name, cls in registry.DECODERS.items() if hasattr(cls, "sentences")]
        raise ValueError(
            f"custom_generate needs a parallel decoder whose output is greedy decoding's: got {parsed.name!r}. Use one of "
            f"{', '.join(parallel)}; for greedy decoding and for beams leave custom_generate out."
        )
    draft = getattr(parsed, "drafts", None)
    if draft is not None and isinstance(draft.table, str):
        loaded = replace(draft, table=DraftTable.load(draft.table))
        parsed = replace(parsed, draft=loaded)  # type: ignore[type-var]
    return CustomGenerate(parsed, packed)
