"""What tasks cost: seconds and bytes, by roofline terms over the lengths of sequences."""
