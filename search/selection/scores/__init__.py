"""What is computed and kept of a scored model beside its metrics."""
