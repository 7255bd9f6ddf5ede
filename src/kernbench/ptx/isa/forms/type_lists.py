"""Lists of modifiers that many rows share."""

INT = "u16|u32|u64|s16|s32|s64"
INT8 = "u8|u16|u32|u64|s8|s16|s32|s64"
SIGNED = "s16|s32|s64"
BITS = "b16|b32|b64"
LOADED = "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
RND = "rn|rz|rm|rp"
RNI = "rni|rzi|rmi|rpi"
HALF = "f16|f16x2"
BRAIN = "bf16|bf16x2"
SCOPE = "cta|cluster|gpu|sys"
# families of targets with tensor memory
TENSOR = "100f|101f|110f"
# their exact (architecture-specific) members
TENSOR_EXACT = "100a|101a|103a|110a"
SHARED = "shared|shared::cta|shared::cluster"
