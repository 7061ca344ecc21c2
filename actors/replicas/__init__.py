"""Several processes that run the same models, behind one client a model."""
