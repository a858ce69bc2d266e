// Speed of the linear layers of a 135-million-parameter model (30 blocks of four matrices, and a
// head), for one row, for fourteen rows of fourteen variants, and for a prompt. Checks one result
// against kernels/ref before it reports anything.
//   bench_linear [isa] [threads] [filter]
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "bench/random.h"
#include "kernels/ref/linear.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int kLayers = 30;
constexpr int kVariants = 14;
constexpr int64_t kVocabulary = 49152, kHidden = 576, kIntermediate = 1536;
constexpr float kAlpha = 2e-4f;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The least of several times: what the code takes when nothing else disturbs it.
double fastest_of(int repeats, const std::function<void()>& work) {
  double best = seconds_of(work);
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of(work));
  return best;
}

void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_linear: %s\n", status.message().c_str());
  std::exit(1);
}

struct Layer {
  WeightId weight;
  int64_t rows, columns;
  Epilogue epilogue;
};

class Model {
 public:
  Model(const CpuBackendOptions& options) {
    auto made = make_cpu_backend(options);
    require(made.status());
    backend_ = std::move(*made);
    std::vector<WeightSpec> specs;
    const auto add = [&](std::vector<WeightPart> parts, int64_t columns, bool interleaved,
                         Epilogue epilogue) {
      WeightSpec spec{WeightKind::kMatrix, std::move(parts), columns, interleaved, -1};
      layers_.push_back({static_cast<WeightId>(specs.size()), spec.rows(), columns, epilogue});
      specs.push_back(std::move(spec));
    };
    for (int l = 0; l < kLayers; ++l) {
      add({{"qkv", 960}}, kHidden, false, Epilogue::kStore);
      add({{"out", kHidden}}, kHidden, false, Epilogue::kAddResidual);
      add({{"gate", kIntermediate}, {"up", kIntermediate}}, kHidden, true, Epilogue::kSiluGate);
      add({{"down", kHidden}}, kIntermediate, false, Epilogue::kAddResidual);
    }
    add({{"head", kVocabulary}}, kHidden, false, Epilogue::kStore);
    require(backend_->declare_weights(specs));
    for (size_t w = 0; w < specs.size(); ++w)
      for (size_t p = 0; p < specs[w].parts.size(); ++p) {
        const int64_t rows = specs[w].parts[p].rows, columns = specs[w].columns;
        std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
        for (uint16_t& v : values)
          v = f32_to_bf16(static_cast<float>(next_random(state_) >> 40) * 0x1p-24f * 0.08f - 0.04f);
        if (w == 3) checked_ = values;
        require(backend_->put_rows(static_cast<WeightId>(w), static_cast<int>(p), 0, rows,
                                   values.data()));
      }
    VariantContent content;
    for (size_t w = 0; w + 1 < specs.size(); ++w)
      content.signs.push_back({static_cast<WeightId>(w), 1});
    for (int v = 0; v < kVariants; ++v) {
      auto variant = backend_->new_variant(content);
      require(variant.status());
      variants_.push_back(std::move(*variant));
      for (size_t w = 0; w + 1 < specs.size(); ++w)
        for (size_t p = 0; p < specs[w].parts.size(); ++p) {
          const int64_t rows = specs[w].parts[p].rows, bytes = specs[w].columns / 8;
          std::vector<uint8_t> bits(static_cast<size_t>(rows * bytes));
          for (uint8_t& b : bits) b = static_cast<uint8_t>(next_random(state_) >> 32);
          if (w == 3 && v == 0) checked_bits_ = bits;
          const std::vector<float> alpha(static_cast<size_t>(rows), kAlpha);
          const auto weight = static_cast<WeightId>(w);
          const auto part = static_cast<int>(p);
          require(variants_.back()->put_sign_rows(weight, part, 0, 0, rows, bits.data()));
          require(variants_.back()->put_alpha(weight, part, 0, alpha.data()));
        }
      require(variants_.back()->finish());
      backend_->ops().bind_slot(v, variants_.back().get());
    }
    const DType type = backend_->ops().activation_type();
    x_ = std::move(*backend_->allocate(512 * kIntermediate * dtype_size(type)));
    for (int64_t i = 0; i < 512 * kIntermediate; ++i) {
      const float v = static_cast<float>(next_random(state_) >> 40) * 0x1p-23f - 1.0f;
      if (type == DType::kBF16)
        x_.as<uint16_t>()[i] = f32_to_bf16(v);
      else
        x_.as<float>()[i] = v;
    }
    out_ = std::move(*backend_->allocate(static_cast<size_t>(32 * kVocabulary) * sizeof(float)));
  }

  void run(const Layer& l, int64_t m, const std::vector<RowGroup>& groups) {
    Ops& ops = backend_->ops();
    const int64_t wide = l.epilogue == Epilogue::kSiluGate ? l.rows / 2 : l.rows;
    const DType type = ops.activation_type();
    ops.linear(matrix_view(out_.data(), l.epilogue == Epilogue::kSiluGate ? type : DType::kF32, m,
                           wide, wide),
               matrix_view(x_.data(), type, m, l.columns, ops.row_stride(l.columns)), l.weight,
               groups, l.epilogue);
  }

  // The down projection of two rows of variant 0, against the oracle: the share of the delta.
  double error() {
    Layer l = layers_[3];
    l.epilogue = Epilogue::kStore;
    run(l, 2, {{0, 2, 0}});
    std::vector<int8_t> signs(static_cast<size_t>(l.rows * l.columns));
    for (size_t i = 0; i < signs.size(); ++i)
      signs[i] = checked_bits_[i / 8] >> (i % 8) & 1 ? 1 : -1;
    const std::vector<float> alpha(static_cast<size_t>(l.rows), kAlpha);
    double wrong = 0, delta = 0;
    for (int64_t r = 0; r < 2; ++r) {
      std::vector<float> x(static_cast<size_t>(l.columns));
      for (int64_t c = 0; c < l.columns; ++c)
        x[static_cast<size_t>(c)] = backend_->ops().activation_type() == DType::kBF16
                                        ? bf16_to_f32(x_.as<uint16_t>()[r * l.columns + c])
                                        : x_.as<float>()[r * l.columns + c];
      const auto base = ref::product(checked_.data(), x.data(), l.rows, l.columns);
      const auto sign =
          ref::sign_product({{signs.data(), alpha.data()}}, x.data(), l.rows, l.columns);
      for (size_t o = 0; o < base.size(); ++o) {
        const double y = out_.as<float>()[r * l.rows + static_cast<int64_t>(o)];
        wrong += (y - base[o] - sign[o]) * (y - base[o] - sign[o]);
        delta += sign[o] * sign[o];
      }
    }
    return std::sqrt(wrong / delta);
  }

  Backend& backend() { return *backend_; }
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  uint64_t state_ = 88172645463325252u;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<VariantWeights>> variants_;
  std::vector<Layer> layers_;
  std::vector<uint16_t> checked_;
  std::vector<uint8_t> checked_bits_;
  Buffer x_, out_;
};

// Floating-point operations of 12 independent chains of the instruction that an instruction set's
// base product is made of, n times; nothing but registers.
#if defined(__x86_64__)
#define DELTAD_CHAINS(type, zero, step)                                                        \
  type a0 = zero, a1 = zero, a2 = zero, a3 = zero, a4 = zero, a5 = zero, a6 = zero, a7 = zero, \
       a8 = zero, a9 = zero, a10 = zero, a11 = zero;                                           \
  for (int64_t i = 0; i < n; ++i) {                                                            \
    step(a0) step(a1) step(a2) step(a3) step(a4) step(a5) step(a6) step(a7) step(a8) step(a9)  \
        step(a10) step(a11)                                                                    \
  }
#define DELTAD_STEP(a) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(a) : "v"(one));
__attribute__((target("avx512f,avx512bf16"))) double chains_bf16(int64_t n) {
  const __m512 one = _mm512_set1_ps(1.0f);
  DELTAD_CHAINS(__m512, _mm512_setzero_ps(), DELTAD_STEP)
  return static_cast<double>(n) * 12 * 64;
}
#undef DELTAD_STEP
#define DELTAD_STEP(a) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(a) : "v"(one));
__attribute__((target("avx512f"))) double chains_avx512(int64_t n) {
  const __m512 one = _mm512_set1_ps(1.0f);
  DELTAD_CHAINS(__m512, _mm512_setzero_ps(), DELTAD_STEP)
  return static_cast<double>(n) * 12 * 32;
}
__attribute__((target("avx2,fma"))) double chains_avx2(int64_t n) {
  const __m256 one = _mm256_set1_ps(1.0f);
  DELTAD_CHAINS(__m256, _mm256_setzero_ps(), DELTAD_STEP)
  return static_cast<double>(n) * 12 * 16;
}
#endif

// Of one thread; 0 where it is not known (scalar).
double peak_flops(Isa isa) {
  double flop = 0;
  const double t = fastest_of(9, [&] {
#if defined(__x86_64__)
    if (isa == Isa::kAvx512Bf16) flop = chains_bf16(200000);
    if (isa == Isa::kAvx512) flop = chains_avx512(400000);
    if (isa == Isa::kAvx2) flop = chains_avx2(400000);
#endif
  });
  return flop / t;
}

// m rows of the base, or row r of variant r % variants.
std::vector<RowGroup> groups_of(int64_t m, int variants) {
  if (variants == 0) return {{0, static_cast<int32_t>(m), kBaseSlot}};
  std::vector<RowGroup> groups;
  for (int v = 0; v < variants; ++v)
    groups.push_back(
        {static_cast<int32_t>(m * v / variants), static_cast<int32_t>(m * (v + 1) / variants), v});
  return groups;
}

// The most that all threads together read from memory, from the team that the kernels use.
double memory_bandwidth(Model& model) {
  struct Reading {
    const uint64_t* at;
    int64_t words;
    uint64_t sums[64];
  };
  constexpr int64_t kParts = 64, kBytes = int64_t{512} << 20;
  Buffer memory = std::move(*Buffer::cpu(kBytes));
  std::memset(memory.data(), 1, kBytes);
  Reading reading{memory.as<uint64_t>(), kBytes / 8 / kParts, {}};
  const double t = fastest_of(9, [&] {
    model.backend().ops().parallel_for(
        kParts,
        [](void* context, int64_t part) {
          auto& r = *static_cast<Reading*>(context);
          const uint64_t* p = r.at + part * r.words;
          uint64_t sum[8] = {};
          for (int64_t i = 0; i < r.words; i += 8)
            for (int64_t j = 0; j < 8; ++j) sum[j] ^= p[i + j];
          for (const uint64_t s : sum) r.sums[part] ^= s;
        },
        &reading);
  });
  if (reading.sums[0] == 1) std::abort();
  return static_cast<double>(kBytes) / t;
}

// The cases take turns, so that what disturbs the machine for a while meets all of them.
void bench_decode(Model& model, double bandwidth) {
  struct Case {
    int64_t m;
    int variants;
    double best;
  };
  std::vector<Case> cases;
  for (const auto& [m, variants] : {std::pair{1, 0},
                                    {1, 1},
                                    {2, 0},
                                    {4, 0},
                                    {4, 4},
                                    {8, 0},
                                    {8, 8},
                                    {14, 0},
                                    {14, 1},
                                    {14, 14},
                                    {28, 14}})
    cases.push_back({m, variants, 1e9});
  for (int round = 0; round < 30; ++round)
    for (Case& c : cases) {
      const double t = seconds_of([&] {
        for (const Layer& l : model.layers())
          model.run(l, c.m, groups_of(c.m, l.rows == kVocabulary ? 0 : c.variants));
      });
      c.best = std::min(c.best, t);
    }
  std::printf("\nall linear layers and the head\n%4s %8s %9s %9s %7s %8s\n", "rows", "variants",
              "ms", "GB/s", "bus", "1/0 =");
  for (const Case& c : cases) {
    double bytes = 0;
    for (const Layer& l : model.layers())
      bytes += static_cast<double>(l.rows * l.columns) *
               (2 + (l.rows == kVocabulary ? 0 : c.variants / 8.0));
    std::printf("%4ld %8d %9.2f %9.1f %6.0f%% %8.2f\n", static_cast<long>(c.m), c.variants,
                c.best * 1e3, bytes / c.best / 1e9, 100 * bytes / c.best / bandwidth,
                c.best / cases[0].best);
  }
}

// One matrix again and again: what computing costs where nothing is read from memory.
void bench_cached(Model& model) {
  const Layer& l = model.layers()[0];
  std::printf("\n%ld x %ld in cache\n%4s %8s %9s %24s\n", static_cast<long>(l.rows),
              static_cast<long>(l.columns), "rows", "variants", "us", "ns per row, 64 weights");
  for (const auto& [m, variants] :
       {std::pair{1, 0}, {1, 1}, {4, 0}, {4, 4}, {8, 0}, {14, 0}, {14, 1}, {14, 14}}) {
    const std::vector<RowGroup> groups = groups_of(m, variants);
    const int64_t rows = m;
    const double t = fastest_of(3000, [&] { model.run(l, rows, groups); });
    std::printf("%4d %8d %9.1f %24.2f\n", m, variants, t * 1e6,
                t * 1e9 / (static_cast<double>(m * l.rows * l.columns) / 64));
  }
}

void bench_prefill(Model& model, double peak) {
  std::printf("\none matrix, 256 rows (in cache)\n%12s %10s %9s %6s %9s %10s\n", "shape", "us",
              "GFLOP/s", "peak", "variant", "base/var");
  for (size_t i = 0; i < 4; ++i) {
    const Layer& l = model.layers()[i];
    const double base = fastest_of(41, [&] { model.run(l, 256, groups_of(256, 0)); });
    const double variant = fastest_of(41, [&] { model.run(l, 256, groups_of(256, 1)); });
    const double flop = 2.0 * 256 * static_cast<double>(l.rows * l.columns);
    std::printf("%5ldx%-6ld %10.0f %9.1f %5.0f%% %9.0f %10.2f\n", static_cast<long>(l.rows),
                static_cast<long>(l.columns), base * 1e6, flop / base / 1e9,
                100 * flop / base / peak, variant * 1e6, base / variant);
  }
  for (const int64_t m : {32, 64, 128, 256, 512}) {
    double flop = 0;
    for (size_t i = 0; i + 1 < model.layers().size(); ++i)
      flop += 2.0 * static_cast<double>(m * model.layers()[i].rows * model.layers()[i].columns);
    const auto all = [&](int variants) {
      return fastest_of(7, [&] {
        for (size_t i = 0; i + 1 < model.layers().size(); ++i)
          model.run(model.layers()[i], m, groups_of(m, variants));
      });
    };
    const double base = all(0), variant = all(1);
    std::printf("all blocks, %3ld rows: base %.1f GFLOP/s (%.0f%% of peak), variant %.2f of it\n",
                static_cast<long>(m), flop / base / 1e9, 100 * flop / base / peak, base / variant);
  }
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  using namespace deltad;
  CpuBackendOptions options;
  if (argc > 1) options.isa = argv[1];
  if (argc > 2) options.threads = std::atoi(argv[2]);
  const std::string only = argc > 3 ? argv[3] : "";
  Model model(options);
  const double error = model.error();
  std::printf("%s; error of the delta against the oracle %.2f %%\n",
              model.backend().description().c_str(), 100 * error);
  if (!(error < 0.05)) {
    std::fprintf(stderr, "bench_linear: the result is wrong\n");
    return 1;
  }
  auto isa = choose_isa(options.isa);
  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  const double bandwidth = memory_bandwidth(model);
  const double peak = peak_flops(*isa) * threads;
  std::printf("memory %.1f GB/s; peak of the base product's instruction %.0f GFLOP/s\n",
              bandwidth / 1e9, peak / 1e9);
  if (only.empty() || only == "decode") bench_decode(model, bandwidth);
  if (only.empty() || only == "cached") bench_cached(model);
  if (only.empty() || only == "prefill") bench_prefill(model, peak);
  return 0;
}
