"""A Llama small enough to read, for the target and every draft: layers, cache, weights in and out.

transformers would do, at a third of the speed on two cores: this one keeps the cache in place,
attends grouped queries without copying keys, and hands out the feature after the last norm, which
is what the drafts learn from.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, INNER, HEADS, KEY_HEADS, WIDTH = 576, 1536, 9, 3, 64  # SmolLM2-135M
GROUP = HEADS // KEY_HEADS
EPSILON, THETA = 1e-5, 100_000.0

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Rotation = tuple[Tensor, Tensor]


class Norm(nn.Module):
    """Root mean square norm, computed in fp32 as the target does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return scaled.to(x.dtype) * self.weight.to(x.dtype)


class Attention(nn.Module):
    """The four projections; what lies between them is the caller's `attend`."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * WIDTH, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KEY_HEADS * WIDTH, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KEY_HEADS * WIDTH, bias=False)
        self.o_proj = nn.Linear(HEADS * WIDTH, HIDDEN, bias=False)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, HEADS, WIDTH).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, KEY_HEADS, WIDTH).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, KEY_HEADS, WIDTH).transpose(1, 2)
        mixed = attend(rotate(q, rotation), rotate(k, rotation), v)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, HEADS * WIDTH))
        return out


class Mlp(nn.Module):
    """Gate, up and down."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer, its parts named as in the published weights."""

    def __init__(self, *, input_norm: bool = True) -> None:
        super().__init__()
        if input_norm:  # vLLM's EAGLE layer has none
            self.input_layernorm = Norm()
        self.input_norm = input_norm
        self.self_attn = Attention()
        self.post_attention_layernorm = Norm()
        self.mlp = Mlp()

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        entry = self.input_layernorm(x) if self.input_norm else x
        x = x + self.self_attn(entry, rotation, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """Layers and the last norm: embeddings in, features out. The embeddings are kept outside."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.norm = Norm()

    def forward(self, x: Tensor, rotation: Rotation, attends: list[Attend]) -> Tensor:
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, rotation, attend)
        out: Tensor = self.norm(x)
        return out


def rotation_at(positions: Tensor, dtype: torch.dtype) -> Rotation:
    """Cosines and sines for these positions, (batch, 1, length, WIDTH)."""
    steps = torch.arange(0, WIDTH, 2, dtype=torch.float32) / WIDTH
    angles = positions[:, None, :, None].float() * (THETA**-steps)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotary position embedding, the halves as Hugging Face lays them."""
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def attend_causally(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Whole sequences padded on the right: nobody looks at what comes later, so at no padding."""
    k, v = (t.repeat_interleave(GROUP, dim=1) for t in (k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Cache:
    """Keys and values of one layer, allocated once; rows leave when their answers end."""

    def __init__(self, rows: int, slots: int) -> None:
        self.k = torch.zeros(rows, KEY_HEADS, slots, WIDTH, dtype=torch.bfloat16)
        self.v = torch.zeros_like(self.k)

    def prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep the prompt, and attend inside it."""
        self.k[:, :, : k.shape[2]] = k
        self.v[:, :, : v.shape[2]] = v
        return attend_causally(q, k, v)

    def step(self, slot: int, mask: Tensor) -> Attend:
        """Attend from one new token per row, kept in `slot`, to all that `mask` lets through."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.k[:, :, slot] = k[:, :, 0]
            self.v[:, :, slot] = v[:, :, 0]
            # the queries that share a key head stand in for a query sequence: no key is copied
            grouped = q.view(q.shape[0], KEY_HEADS, GROUP, WIDTH)
            mixed = functional.scaled_dot_product_attention(
                grouped,
                self.k[:, :, : slot + 1],
                self.v[:, :, : slot + 1],
                attn_mask=mask[:, None, None, : slot + 1].expand(-1, 1, GROUP, -1),
            )
            return mixed.view(q.shape[0], HEADS, 1, WIDTH)

        return attend

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows."""
        self.k, self.v = self.k[rows], self.v[rows]


def load_llama(weights: Mapping[str, Tensor], depth: int) -> Llama:
    """A Llama of `depth` layers from published names ("model.layers.0...")."""
    model = Llama(depth)
    own = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    model.load_state_dict({name: own[name] for name in model.state_dict()})
    return model


def load_target(folder: Path) -> tuple[Llama, Tensor]:
    """The target in bf16, and its embeddings, which are its output matrix as well."""
    weights = load_file(folder / "model.safetensors")
    target = load_llama(weights, depth=30).to(torch.bfloat16).requires_grad_(requires_grad=False)
    return target, weights["model.embed_tokens.weight"]
