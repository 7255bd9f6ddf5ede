"""Floating-point arithmetic of every width: f64, f32, f16, bf16 and packed halves, in every rounding mode."""
