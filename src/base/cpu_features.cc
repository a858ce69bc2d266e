#include "base/cpu_features.h"

#include <fmt/core.h>

#include <cstdlib>

namespace deltad {
namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "?";
}

Isa best_isa() {
#if defined(__x86_64__)
  // The builtins also ask whether the operating system saves the registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2"))
    return Isa::kScalar;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vnni"))
    return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::kAvx512;
  return Isa::kAvx512Bf16;
#else
  return Isa::kScalar;
#endif
}

Isa fastest_isa() {
  const Isa best = best_isa();
#if defined(__x86_64__)
  if (best == Isa::kAvx512Bf16 && __builtin_cpu_is("intel")) return Isa::kAvx512;
#endif
  return best;
}

Result<Isa> choose_isa(const std::string& name) {
  std::string wanted = name;
  std::string where = "the instruction set";
  if (wanted.empty()) {
    const char* env = std::getenv("DELTAD_CPU_ISA");
    if (env == nullptr || *env == '\0') return fastest_isa();
    wanted = env;
    where = "the environment variable DELTAD_CPU_ISA";
  }
  for (const Isa isa : kAll) {
    if (wanted != isa_name(isa)) continue;
    if (isa > best_isa())
      return invalid_argument(fmt::format("{} is '{}', but the best that this CPU has is '{}'",
                                          where, wanted, isa_name(best_isa())));
    return isa;
  }
  return invalid_argument(
      fmt::format("{} is '{}', expected scalar, avx2, avx512 or avx512_bf16", where, wanted));
}

}  // namespace deltad
