#pragma once
#include "fakecuda_narrow.h"
using __half = fakecuda::Narrow<fakecuda::HalfFormat>;
using half = __half;
using __half2 = fakecuda::NarrowPair<fakecuda::HalfFormat>;
using half2 = __half2;
inline half2 make_half2(half x, half y) { return {x, y}; }
inline half2 __halves2half2(half x, half y) { return {x, y}; }
inline half __float2half(float x) { return half(x); }
inline half __float2half_rn(float x) { return half(x); }
inline float __half2float(half x) { return float(x); }
