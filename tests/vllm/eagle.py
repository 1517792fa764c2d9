"""Train a tiny EAGLE head (arXiv 2401.15077) for the embedded LLM, and write it for vLLM.

The head guesses the LLM's next hidden state from the present one and the token that follows, with
one layer of attention. The LLM's own embeddings turn its guess into a token.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from citer.config.params import PairParams
from citer.models.folder import PairFolder
from citer.models.pair import LanguageModel, load_pair
from citer.storage.tables import read_json, write_json
from tests.vllm.offline import LLM, SLM, questions

STEPS, ROWS = 150, 16


class EagleHead(nn.Module):
    def __init__(self, config: LlamaConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        config._attn_implementation = "sdpa"
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layer = LlamaDecoderLayer(config, 0)
        self.layer.input_layernorm = nn.Identity()  # vLLM has none there
        self.rotary = LlamaRotaryEmbedding(config)
        self.embedding = embedding

    def forward(self, token_RT: Tensor, hidden_RTH: Tensor) -> Tensor:
        """Return hidden_RTH, the guess of what the LLM has at each of these tokens."""
        x_RTH = self.fc(torch.cat([self.embedding(token_RT), hidden_RTH], -1))
        place_1T = torch.arange(token_RT.shape[1])[None]
        angles = self.rotary(x_RTH, place_1T)
        guess = self.layer(x_RTH, position_embeddings=angles, position_ids=place_1T)
        return guess if isinstance(guess, Tensor) else guess[0]


def train(folder: Path) -> Path:
    """Write a head that has learnt the answers of the LLM to embedded questions."""
    torch.manual_seed(0)
    folders = PairFolder(SLM, LLM)
    params = PairParams(slm=str(SLM), llm=str(LLM), device="cpu", dtype="float32")
    llm = load_pair(folders, params).local_llm
    kept = ("vocab_size", "intermediate_size", "rms_norm_eps", "max_position_embeddings")
    sizes = {name: getattr(llm.network.config, name) for name in kept}
    width, heads = llm.network.config.hidden_size, llm.network.config.num_attention_heads
    config = LlamaConfig(hidden_size=width, num_attention_heads=heads, num_hidden_layers=1, **sizes)
    embedding = llm.network.get_input_embeddings().requires_grad_(False)
    head = EagleHead(config, embedding)
    optimizer = torch.optim.AdamW([each for each in head.parameters() if each.requires_grad], 2e-3)
    texts = _texts(folders)
    for step in range(STEPS):
        rows = [texts[(step * ROWS + n) % len(texts)] for n in range(ROWS)]
        length = min(map(len, rows))
        loss = _loss(head, llm, torch.tensor([row[:length] for row in rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _write(head, config, folder)


def _texts(folders: PairFolder) -> list[list[int]]:
    """Return prompts with references; none of the questions is one that the tests ask."""
    known = questions(400)[100:]
    encode = folders.prompts.encode_all(known).values()
    rows = [[*example.prompt_ids, *example.reference_ids] for example in encode]
    return sorted(rows, key=len)


def _loss(head: EagleHead, llm: LanguageModel, ids_RT: Tensor) -> Tensor:
    with torch.inference_mode():
        hidden_RTH = llm.last_hidden(input_ids=ids_RT)
    hidden_RTH = hidden_RTH.clone()
    guess_RTH = head(ids_RT[:, 1:-1], hidden_RTH[:, :-2])
    logits_NV = (guess_RTH @ head.embedding.weight.T).flatten(0, 1)
    near = (guess_RTH - hidden_RTH[:, 1:-1]).pow(2).mean()
    return cross_entropy(logits_NV, ids_RT[:, 2:].flatten()) + 0.1 * near


def _write(head: EagleHead, config: LlamaConfig, folder: Path) -> Path:
    folder.mkdir(parents=True)
    weights = {f"layers.0.{name}": own for name, own in head.layer.state_dict().items()}
    weights |= {"fc.weight": head.fc.weight, "embed_tokens.weight": head.embedding.weight}
    tensors = {name: own.detach().clone().contiguous() for name, own in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    eagle = {"tie_word_embeddings": True}
    write_json(folder / "config.json", read_json(folder / "config.json") | eagle)
    return folder
