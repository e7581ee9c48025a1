"""`SERVE.md`: what to type to serve planted checkpoints, for each format in which they are there."""

from collections.abc import Sequence

_HEAD = """\
# Serving these checkpoints

`target` and `draft` are small transformers whose next-token law is known, so that everything that an engine
does between prompt and text can be tested. Serve the target with the draft as its speculative model, then run

    specsim audit engine http://127.0.0.1:8000 --planted .

They have {words:,} words and hold {context:,} positions. Any dtype will do: all weights are exact in float16
and bfloat16. `specsim plant --check .` compares their log-probabilities with the law.

The commands below are run in this folder, and draft 4 tokens in each step. Names of options change between
versions of an engine; its `--help` has those of yours.
"""

_GUIDES = {
    "hf": """
## transformers, in the same process

    specsim audit engine hf --planted .

## vLLM

    vllm serve target --max-model-len {context} --generation-config vllm --speculative-config \\
      '{{"method": "draft_model", "model": "draft", "num_speculative_tokens": 4}}'

## SGLang

    python -m sglang.launch_server --model-path target --port 8000 --speculative-algorithm STANDALONE \\
      --speculative-draft-model-path draft --speculative-num-steps 4 --speculative-eagle-topk 1 \\
      --speculative-num-draft-tokens 5

## TensorRT-LLM

With these lines in `speculative.yaml`:

    disable_overlap_scheduler: true
    speculative_config:
      decoding_type: DraftTarget
      max_draft_len: 4
      speculative_model_dir: draft

type

    trtllm-serve target --backend pytorch --port 8000 --extra_llm_api_options speculative.yaml

## MLX-LM

    mlx_lm.server --model target --draft-model draft --num-draft-tokens 4 --port 8000

or in the same process:

    specsim audit engine mlx-lm --planted .
""",
    "gguf": """
## llama.cpp

    llama-server -m target.gguf -md draft.gguf --spec-draft-n-max 4 --spec-draft-p-min 0 \\
      -c {context} --metrics --port 8000

or in the same process:

    specsim audit engine llama.cpp --planted .
""",
}


def guide(context: int, words: int, formats: Sequence[str]) -> str:
    """The text of `SERVE.md`."""
    return "".join([_HEAD, *(_GUIDES[format] for format in formats)]).format(context=context, words=words)
