"""Rules of pixels of models that look at images alone, each a `PixelRule` by its module's name."""
