"""What engines that sample share: the distribution, when a completion ends, refusals."""
