#pragma once
#include "fakecuda_narrow.h"
using __nv_bfloat16 = fakecuda::Narrow<fakecuda::BrainFormat>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = fakecuda::NarrowPair<fakecuda::BrainFormat>;
using nv_bfloat162 = __nv_bfloat162;
inline nv_bfloat16 __float2bfloat16(float x) { return nv_bfloat16(x); }
inline float __bfloat162float(nv_bfloat16 x) { return float(x); }
