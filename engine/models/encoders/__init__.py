"""Text encoders of transformers for embeddings: BERT, XLM-R, ModernBERT, MPNet, base models of decoders."""
