"""What vLLM is started with."""

from flowrl.runtime.engines.vllm.start import at_once


def test_sequences_that_run_at_once_all_find_a_cuda_graph():
    assert at_once(None) == {}
    assert at_once(512) == {"max_num_seqs": 512, "compilation_config": {}}
    assert at_once(1024) == {
        "max_num_seqs": 1024,
        "compilation_config": {"max_cudagraph_capture_size": 1024},
    }
