// Included before every kernel: address spaces and function kinds mean nothing on the host.
#pragma once
#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __fbuf__
#define __aicore__
#define __global__
#define __tf__
#define __in__
#define __out__
#define AICORE
#define PTO_INTERNAL inline
#define PTO_INST inline
#define PTO_DEVICE_FUNC
