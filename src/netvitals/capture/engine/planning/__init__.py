"""What a traced pass tells: where its tensors come from, which activations there are, and how to find them again."""
