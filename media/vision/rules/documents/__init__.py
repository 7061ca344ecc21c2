"""Rules of pixels of models that read documents, or look at a picture in several pieces or sizes."""
