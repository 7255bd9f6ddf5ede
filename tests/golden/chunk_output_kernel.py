"""A chunk-output kernel in f32 that loads whole tiles as TMA does, with a place for each fault."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import cast


def normalised(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def make(seed, lengths, H=2, group=2, K=32, V=32, gate=0.1, initial=1.0):
    """Inputs as models make them: normalised keys, gates and betas between 0 and 1; q, k and v fit bf16."""
    random = np.random.default_rng(seed)
    T, Hv = sum(lengths), H * group
    arrays = {
        "q": random.standard_normal((T, H, K)),
        "k": normalised(random.standard_normal((T, H, K))),
        "v": random.standard_normal((T, Hv, V)),
        "g": -gate * random.exponential(size=(T, Hv)),
        "beta": random.uniform(size=(T, Hv)),
        "initial_state": initial * random.standard_normal((len(lengths), Hv, V, K)) / np.sqrt(K),
    }
    arrays = {name: x.astype(np.float32) for name, x in arrays.items()}
    for name in "qkv":
        arrays[name] = cast(arrays[name], "bf16").astype(np.float32)
    return arrays | {"cu_seqlens": np.cumsum([0, *lengths])}


@dataclass(frozen=True)
class ChunkOutput:
    """Everything right, but for what a field says."""

    masked: bool = True
    mask_by_product: bool = False
    diagonal: int = 0
    gamma: bool = True
    carried_decay: bool = True
    scaled: bool = True
    state_of: int = 0
    state_turned: bool = False
    wrong_head: bool = False
    restart: bool = True
    whole_tiles: bool = False
    p_dtype: str = "bf16"
    output: str = "bf16"

    def __call__(self, inputs):
        T, Hv, V = inputs.output_shape
        out = np.full((T + inputs.chunks.size, Hv, V), np.nan, np.float32)
        # the last chunk first: what a ragged one stores too much stays
        for chunk in reversed(range(int(inputs.total_chunks[0]))):
            sequence, index = inputs.chunk_indices[chunk]
            start = int(inputs.cu_seqlens[sequence]) + int(index) * inputs.chunks.size
            rows = min(inputs.chunks.size, int(inputs.cu_seqlens[sequence + 1]) - start)
            for head in range(Hv):
                stored = inputs.chunks.size if self.whole_tiles else rows
                out[start : start + stored, head] = self.tile(inputs, chunk, start, rows, head)[:stored]
        return cast(out[:T], self.output)

    def tile(self, inputs, chunk, start, rows, head):
        size, (_, Hv, _) = inputs.chunks.size, inputs.output_shape
        owner = (head + self.wrong_head) % Hv // (Hv // inputs.q.shape[1])
        q, k = (self.load(x[:, owner], start, size) for x in (inputs.q, inputs.k))
        g = self.gates(inputs, chunk, start, size)[:, head]
        v = self.load(inputs.v_new[:, head], chunk * size, size)
        number = (chunk + self.state_of) % int(inputs.total_chunks[0])
        h = inputs.h[number * Hv + head].astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            p = self.scores(q, k, g, rows)
            carried = q @ (h if self.state_turned else h.T)
            if self.carried_decay:
                carried = carried * np.exp(g)[:, None]
            out = carried + cast(p.astype(np.float32), self.p_dtype).astype(np.float32) @ v
            return out * np.float32(inputs.scale) if self.scaled else out

    def gates(self, inputs, chunk, start, size):
        g = self.load(inputs.g, start, size)
        if self.restart or inputs.chunk_indices[chunk][1] == 0:
            return g
        # the sum goes on from the chunk before
        return g + inputs.g[start - 1]

    def scores(self, q, k, g, rows):
        gamma = np.exp(g[:, None] - g[None, :]) if self.gamma else np.float32(1)
        p = (q @ k.T) * gamma
        column = np.arange(len(q))
        keep = column <= column[:, None] + self.diagonal
        if not self.masked:
            keep = np.ones_like(keep)
        keep &= (column < rows) & (column[:, None] < rows)
        return p * keep if self.mask_by_product else np.where(keep, p, np.float32(0))

    @staticmethod
    def load(array, start, size):
        """A tile of whole rows: those of the next sequence behind a ragged end, zeros behind the last."""
        tile = array[start : start + size].astype(np.float32)
        return np.concatenate([tile, np.zeros((size - len(tile), *tile.shape[1:]), np.float32)])
