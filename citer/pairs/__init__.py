"""What a pair of models needs and gives, before and at its first answers."""
