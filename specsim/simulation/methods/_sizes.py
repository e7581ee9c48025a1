"""Sizes of drafters beside a target with the dimensions of LLaMA-7B (Touvron et al., arXiv 2302.13971)."""

WIDTH, INNER, VOCABULARY, LAYERS = 4096, 11008, 32_000, 32

#: Parameters of a decoder layer (attention, and a gated feed-forward network) and of the output layer.
LAYER = 4 * WIDTH**2 + 3 * WIDTH * INNER
HEAD = WIDTH * VOCABULARY
TARGET = LAYERS * LAYER + 2 * HEAD

#: A separate model of 68 million parameters, which SpecInfer and Sequoia draft with.
SMALL_MODEL = round(68e6 / TARGET, 4)
#: One decoder layer over the target's features and a token, with the output layer.
ONE_LAYER = round((LAYER + 2 * WIDTH**2 + HEAD) / TARGET, 4)
#: A head: a residual block and an output layer.
ONE_HEAD = round((WIDTH**2 + HEAD) / TARGET, 4)


def layers(number: int) -> float:
    """The share of the first `number` decoder layers with the output layer."""
    return round((number * LAYER + HEAD) / TARGET, 4)
