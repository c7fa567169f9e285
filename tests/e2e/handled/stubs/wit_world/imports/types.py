"""None of them."""
