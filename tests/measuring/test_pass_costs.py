"""Passes of several widths, as they are timed."""

from dataclasses import replace

from fastdecode_lib.laws.cases import random_tensors, tiny_architecture
from fastdecode_lib.measuring import pass_costs
from fastdecode_lib.models.transformer import Transformer


def test_separate_vocabularies():
    shape = replace(tiny_architecture("marian", 30), source_vocabulary=7, shared_embeddings=False)
    network = Transformer(shape, random_tensors(shape, 1))
    for system in pass_costs.pass_systems(network, (1, 3)):
        assert len(system.decode(None)) == int(system.name.split()[-1])
