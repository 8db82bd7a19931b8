"""CPU code generation: the host's features, contractions. Start in target.py and contract.py."""
