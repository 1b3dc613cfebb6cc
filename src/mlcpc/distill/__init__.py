"""Knowledge distillation: plain students, Hinton's KD, CRD, and CPC and ML-CPC at any α."""
