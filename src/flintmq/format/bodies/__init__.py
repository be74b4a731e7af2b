"""The JSON bodies of requests and answers, one module per family."""
