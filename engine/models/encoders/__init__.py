"""Text encoders of transformers (BERT, XLM-R, ModernBERT, MPNet, base models of decoders): vectors of texts."""
