"""vLLM as an engine that samples: started beside other work, given weights and requests."""
