// Products for attention in fp32: the cache's bf16 values are widened on the way. Included by
// attention_ISA.cc where there is no vdpbf16ps, after its Lanes and ProductBlocks (the sizes that
// fit its registers); local to that file.
#pragma once

#include <cstdint>

namespace deltad::cpu {
namespace {

struct Products : ProductBlocks {
  using Element = float;
  struct Pairs {
    Lanes::F first, second;
  };

  static Pairs load(const uint16_t* p) {
    return {Lanes::first_of_pairs(p), Lanes::second_of_pairs(p)};
  }
  static Pairs first_only(const Pairs& pairs) { return {pairs.first, Lanes::set1(0.0f)}; }
  static Lanes::F dot(const Lanes::F& acc, const Pairs& pairs, const float* x) {
    return Lanes::fma(pairs.second, Lanes::set1(x[1]),
                      Lanes::fma(pairs.first, Lanes::set1(x[0]), acc));
  }
  static void store(float* p, const Lanes::F& a) { Lanes::store(p, a); }
  static void store_first(float* p, const Lanes::F& a, int n) { Lanes::store_first(p, a, n); }
  static Lanes::F stored(const Lanes::F& a) { return a; }
};

}  // namespace
}  // namespace deltad::cpu
