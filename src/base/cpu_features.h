// Which instruction set the kernels use, decided once at start.
#pragma once

#include <string>

#include "base/status.h"

namespace deltad {

// In rising order: each needs what the one before needs.
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Bf16 };

const char* isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512_bf16"

// The best that this CPU (and its operating system) has.
Isa best_isa();

// The one that runs fastest here. That is the best, except that Intel's cores up to Emerald Rapids
// start a 512-bit vdpbf16ps once in two cycles but two fp32 multiply-adds in every one (measured:
// 86 against 177 GFLOP/s a core), so there it is kAvx512, which is also the more exact.
Isa fastest_isa();

// name "": $DELTAD_CPU_ISA if set, else the fastest. kInvalidArgument names the choices, or says
// that this CPU lacks it.
Result<Isa> choose_isa(const std::string& name);

}  // namespace deltad
