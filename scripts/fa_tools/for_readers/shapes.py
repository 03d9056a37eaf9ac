"""Problems as servers have them, drawn by a seed, so that nobody can tune a kernel to them.

From 1 to 20,000 queries, and as many keys or more, of 1 to 64 sequences; 1 to 64 heads, which share 1, 2, 4 or 8 heads of keys; with and
without a causal mask. These numbers are drawn by their logarithm, so few are multiples of a tile. Scores spread by 1 nat, in one problem
of five by 5 or 20, in half of these the more the later the key. What takes more than a few milliseconds on a large GPU, or more memory than a
small one has, gets other keys, heads and sequences, but keeps its queries: long prompts are not drawn less often than short ones."""

import random

COUNT = 50  # problems of a seed
MOST_ELEMENTS = 1 << 27  # of Q, and of K
MOST_ROWS = 1 << 21  # keys, over all heads of queries: the reference on the CPU reads them for each row that it checks
MOST_FLOPS = 2e12


def drawn(seed):
    """The problems of this seed, with fields as results files have them."""
    numbers, found = random.Random(seed), []

    def up_to(most):
        """From 1 on, by the logarithm."""
        return int((most + 1) ** numbers.random())

    def one_of(*words):
        return words[int(len(words) * numbers.random())]

    while len(found) < COUNT:
        queries, dtype, head_dim, causal = up_to(20_000), one_of("bf16", "bf16", "bf16", "fp16"), one_of(64, 128, 128), one_of(True, False)
        spread, growth = one_of(None, None, None, None, None, None, None, None, 5.0, 20.0), one_of("flat", "growing")
        while True:
            kv_heads, batch, keys = one_of(1, 2, 4, 8), up_to(64), queries + (up_to(20_000) if numbers.random() < 0.6 else 0)
            heads = kv_heads * up_to(64 // kv_heads)
            size = (batch * heads * queries * head_dim, batch * kv_heads * keys * head_dim)
            if max(size) <= MOST_ELEMENTS and batch * heads * keys <= MOST_ROWS and 4 * size[0] * keys <= MOST_FLOPS:
                break
        problem = {"dtype": dtype, "batch": batch, "heads": heads, "seq_len": queries, "head_dim": head_dim,
                   **({"mask": "causal"} if causal else {}), **({"kv_heads": kv_heads} if kv_heads != heads else {}),
                   **({"kv_len": keys} if keys != queries else {}), **({"score_std": spread, "score_growth": growth} if spread else {})}
        if problem not in found:
            found.append(problem)
    return found
