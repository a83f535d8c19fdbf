// Numbers of 16 bits. Each operation is done in 32 bits, and rounded.
#pragma once
#include "fakecuda_device.h"

namespace fakecuda {

struct HalfFormat {
  static uint16_t bits(float x) { return fakecuda_bits<uint16_t>(_Float16(x)); }
  static float number(uint16_t bits) { return float(fakecuda_bits<_Float16>(bits)); }
};

struct BrainFormat {
  static uint16_t bits(float x) {
    const auto all = fakecuda_bits<uint32_t>(x);
    return x != x ? uint16_t(all >> 16 | 0x40) : uint16_t((all + 0x7FFF + (all >> 16 & 1)) >> 16);
  }
  static float number(uint16_t bits) { return fakecuda_bits<float>(uint32_t(bits) << 16); }
};

template <class Format>
struct Narrow {
  uint16_t bits;
  Narrow() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Narrow(T x) : bits(Format::bits(float(x))) {}
  operator float() const { return Format::number(bits); }
  Narrow& operator+=(Narrow b) { return *this = *this + b; }
  Narrow& operator-=(Narrow b) { return *this = *this - b; }
  Narrow& operator*=(Narrow b) { return *this = *this * b; }
  Narrow& operator/=(Narrow b) { return *this = *this / b; }
  Narrow operator-() const { return Narrow(-float(*this)); }
  friend Narrow operator+(Narrow a, Narrow b) { return Narrow(float(a) + float(b)); }
  friend Narrow operator-(Narrow a, Narrow b) { return Narrow(float(a) - float(b)); }
  friend Narrow operator*(Narrow a, Narrow b) { return Narrow(float(a) * float(b)); }
  friend Narrow operator/(Narrow a, Narrow b) { return Narrow(float(a) / float(b)); }
  friend bool operator<(Narrow a, Narrow b) { return float(a) < float(b); }
  friend bool operator>(Narrow a, Narrow b) { return float(a) > float(b); }
  friend bool operator<=(Narrow a, Narrow b) { return float(a) <= float(b); }
  friend bool operator>=(Narrow a, Narrow b) { return float(a) >= float(b); }
  friend bool operator==(Narrow a, Narrow b) { return float(a) == float(b); }
  friend bool operator!=(Narrow a, Narrow b) { return float(a) != float(b); }
  friend bool __hgt(Narrow a, Narrow b) { return a > b; }
  friend bool __hlt(Narrow a, Narrow b) { return a < b; }
  friend Narrow __habs(Narrow a) { return Narrow(fabsf(a)); }
  friend Narrow __hfma(Narrow a, Narrow b, Narrow c) { return Narrow(fmaf(a, b, c)); }
  friend Narrow hexp(Narrow a) { return Narrow(expf(a)); }
  friend Narrow hexp2(Narrow a) { return Narrow(exp2f(a)); }
  friend Narrow hlog(Narrow a) { return Narrow(logf(a)); }
  friend Narrow hsqrt(Narrow a) { return Narrow(sqrtf(a)); }
  friend Narrow hrsqrt(Narrow a) { return Narrow(rsqrtf(a)); }
  friend Narrow hfloor(Narrow a) { return Narrow(floorf(a)); }
  friend Narrow hceil(Narrow a) { return Narrow(ceilf(a)); }
  friend Narrow htrunc(Narrow a) { return Narrow(truncf(a)); }
  friend Narrow hrint(Narrow a) { return Narrow(nearbyintf(a)); }
  friend Narrow hcos(Narrow a) { return Narrow(cosf(a)); }
  friend Narrow hsin(Narrow a) { return Narrow(sinf(a)); }
  friend Narrow htanh(Narrow a) { return Narrow(tanhf(a)); }
  friend Narrow hrcp(Narrow a) { return Narrow(1.0f / float(a)); }
};

template <class Format>
struct alignas(4) NarrowPair {
  Narrow<Format> x, y;
  NarrowPair() = default;
  NarrowPair(Narrow<Format> first, Narrow<Format> second) : x(first), y(second) {}
  friend NarrowPair __hadd2(NarrowPair a, NarrowPair b) { return {a.x + b.x, a.y + b.y}; }
  friend NarrowPair __hmul2(NarrowPair a, NarrowPair b) { return {a.x * b.x, a.y * b.y}; }
  friend NarrowPair __hfma2(NarrowPair a, NarrowPair b, NarrowPair c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
  }
};

}  // namespace fakecuda
