"""What the user says: shapes, and what is made of them."""
