"""What a step costs: seconds by a roofline model, bytes by item."""
