"""Running the laws on every decoder of the registry, in every number format, on random cases, and on every projection."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Decoder
from fastdecode_lib.decoding.double_token import DoubleToken
from fastdecode_lib.decoding.mask_predict import MaskPredict
from fastdecode_lib.laws.cases import NUMBERS, Case, LawBroken, random_case, random_decoder
from fastdecode_lib.laws.decoders import DECODER_LAWS
from fastdecode_lib.laws.models import GROUP_LAWS, MODEL_LAWS
from fastdecode_lib.laws.projections import PROJECTION_LAWS, projection_cases


def run_laws(cases: int, first_seed: int = 0) -> Iterator[dict[str, Any]]:
    """Run every law on random cases; yield a row for each law and decoder, or projection, as soon as it is done.

    Rows have ``name`` (of the law, the decoder and, on the compiled engine, the precision), ``cases``, ``broken`` (number of
    broken cases) and ``first`` (the first message, or empty).
    """
    seeds = range(first_seed, first_seed + cases)
    for numbers in NUMBERS:
        suffix = "" if numbers == "float64" else f"/{numbers}"
        usual = [random_case(seed, numbers=numbers) for seed in seeds]
        for law in MODEL_LAWS:
            yield tally(f"{law.__name__}{suffix}", [partial(law, case) for case in usual])
        special = {
            name: [random_case(seed, numbers=numbers, fits=name) for seed in seeds]
            for name in (DoubleToken.name, MaskPredict.name)
        }
        for law in GROUP_LAWS:
            yield tally(f"{law.__name__}/groups{suffix}", [partial(law, case) for case in special[DoubleToken.name]])
        for name in registry.DECODERS:
            for decoder_law in DECODER_LAWS:
                checks = [partial(_on_decoder, decoder_law, name, case) for case in special.get(name, usual)]
                yield tally(f"{decoder_law.__name__}/{name}{suffix}", checks)
    for name in registry.PROJECTIONS:
        scored = list(projection_cases(name))
        for projection_law in PROJECTION_LAWS if scored else ():
            yield tally(f"{projection_law.__name__}/{name}", [partial(projection_law, case) for case in scored])


def _on_decoder(law: Callable[[Decoder, Case], None], name: str, case: Case) -> None:
    law(random_decoder(name, np.random.default_rng((case.seed, 2))), case)


def tally(name: str, checks: Sequence[Callable[[], None]]) -> dict[str, Any]:
    """A row of `run_laws`: the number of checks that break their law, and the first message."""
    messages = []
    for check in checks:
        try:
            check()
        except LawBroken as error:
            messages.append(str(error))
    return {"name": name, "cases": len(checks), "broken": len(messages), "first": messages[0] if messages else ""}
