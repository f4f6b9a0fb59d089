"""Weight drift, activation sparsity and spikes: the paper's theorems and experiments."""
