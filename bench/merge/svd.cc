// How fast the decompositions behind `deltactl merge` are and what they take, on one layer's
// matrices: bench_svd [ROWS COLUMNS]…, by default those of a 1B model (hidden 2048, MLP 8192).
// For each: MonoSoup of the matrix against the SVD library's own CPU time for the same
// decomposition, the accounted peak against what the process took, and the randomized LoRA factors.
// Checks that the result is right before it tells a time.
#include "merge/svd.h"

#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_features.h"
#include "merge/linear_kernels.h"
#include "merge/monosoup.h"

namespace deltad {
namespace {

// CPU time of this thread, which does all the work: what else runs on the machine does not count.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Most memory since the last reset, in bytes.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int64_t memory(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key, 0) == 0) return std::atoll(line.c_str() + std::string(key).size()) * 1024;
  return 0;
}

// A low-rank part and noise, as a fine-tune's Δ has.
Matrix synthetic(int64_t m, int64_t n) {
  uint32_t seed = 1;
  const auto next = [&seed] {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<float>(seed >> 8) / static_cast<float>(1 << 24) - 0.5f;
  };
  constexpr int64_t kRank = 32;
  Matrix b(m, kRank), a(kRank, n), out;
  for (float& x : b.values) x = next();
  for (float& x : a.values) x = next();
  out = multiply(b, As::kIs, a, As::kIs);
  for (float& x : out.values) x = 1e-3f * (x + 0.5f * next());
  return out;
}

bool run(int64_t m, int64_t n) {
  const Matrix delta = synthetic(m, n);
  const int64_t p = std::min(m, n);
  double library = 0;
  {
    Matrix u(m, p), s(1, p), v(n, p);
    const LinearKernels& kernels =
        best_isa() == Isa::kScalar ? linear_kernels_plain() : linear_kernels_avx2();
    const double begin = cpu_seconds();
    if (!kernels.svd(m, n, delta.values.data(), u.values.data(), s.values.data(), v.values.data()))
      return false;
    library = cpu_seconds() - begin;
  }
  ::malloc_trim(0);
  Matrix merged = delta;
  const int64_t before = memory("VmRSS:");
  reset_peak();
  double begin = cpu_seconds();
  auto figures = monosoup(KeepRule{}, 1, &merged);
  const double whole = cpu_seconds() - begin;
  const int64_t took = memory("VmHWM:") - before;
  if (!figures.ok() || !figures->changed) return false;
  // ‖λ_high Δ_high + λ_low Δ_low‖² = (λ_high² P + λ_low² (1 − P)) ‖Δ‖²
  const double expected = (figures->lambda_high * figures->lambda_high * figures->energy +
                           figures->lambda_low * figures->lambda_low * (1 - figures->energy)) *
                          squares(delta);
  if (std::abs(squares(merged) / expected - 1) > 1e-3) return false;

  begin = cpu_seconds();
  auto factors = randomized_svd(delta, 16, {});
  const double randomized = cpu_seconds() - begin;
  if (!factors.ok()) return false;
  fmt::print(
      "{}x{}: SVD {:.2f} s; MonoSoup {:.2f} s = {:.0f} % of its rate, k {}, P {:.3f}; "
      "peak accounted {:.0f} MiB, taken {:.0f} MiB; randomized rank 16 {:.2f} s, kept {:.4f}\n",
      m, n, library, whole, 100 * library / whole, figures->k, figures->energy,
      static_cast<double>(monosoup_bytes(m, n)) / (1 << 20), static_cast<double>(took) / (1 << 20),
      randomized, energy(*factors, 16) / squares(delta));
  std::fflush(stdout);
  return true;
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int i = 1; i + 1 < argc; i += 2)
    shapes.emplace_back(std::atoll(argv[i]), std::atoll(argv[i + 1]));
  if (shapes.empty()) shapes = {{512, 2048}, {2048, 2048}, {8192, 2048}, {2048, 8192}};
  for (const auto& [m, n] : shapes)
    if (m <= 0 || n <= 0 || !deltad::run(m, n)) {
      std::fprintf(stderr, "bench_svd: wrong result or sizes\n");
      return 1;
    }
  return 0;
}
