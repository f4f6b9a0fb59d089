"""Weight drift: Euler's identity, signs of gradients, the dial, suppression, sparsity and spikes of a data set."""
