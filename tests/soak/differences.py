"""Lossless decoders against greedy decoding, on random models, in every number format."""

from collections.abc import Iterator

from fastdecode_lib import registry
from fastdecode_lib.laws.cases import NUMBERS, LawBroken, random_case, random_decoder
from fastdecode_lib.laws.decoders import batch_equals_single, lossless_equals_greedy
from soak.workshop import Outcome

NAMES = [name for name, decoder in registry.DECODERS.items() if decoder.lossless and name != "greedy"]
HUNDREDS = 100


def cases(seed: int) -> Iterator[tuple[str, str, Outcome]]:
    """Decode random cases, a hundred of a kind, without end: decoder and numbers, the seed, and what came of it."""
    number = 0
    while True:
        name = NAMES[number // HUNDREDS % len(NAMES)]
        numbers = NUMBERS[number // HUNDREDS // len(NAMES) % len(NUMBERS)]
        drawn = seed * 1_000_003 + number
        case = random_case(drawn, numbers=numbers, fits=name, ties=number % 2 == 1)
        try:
            decoder = random_decoder(name, case.random)
            lossless_equals_greedy(decoder, case)
            batch_equals_single(decoder, case)
            outcome = Outcome("equal")
        except LawBroken as error:
            outcome = Outcome("different", str(error))
        yield f"{name}, {numbers}", str(drawn), outcome
        number += 1
