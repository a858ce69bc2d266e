// One weight and variants of it, loaded into a CPU backend from random row-major data, which is
// kept for the oracle (kernels/ref/linear.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "kernels/ref/linear.h"
#include "tensor/float16.h"

namespace deltad::testing {

struct VariantData {
  std::vector<std::vector<int8_t>> signs;  // [level][rows · columns]
  std::vector<std::vector<float>> alpha;   // [level][rows]
  std::vector<uint16_t> dense;             // [dense_rows · columns]; empty: not replaced
  struct LowRank {
    int64_t rank = 0;
    float scale = 0;
    std::vector<float> a, b;  // [rank · columns], [rows · rank], values that bf16 can hold
  };
  std::vector<LowRank> low_rank;  // [parts]; empty: none
  int64_t dense_rows = 0;

  std::vector<ref::SignLevel> levels() const;
};

class LinearCase {
 public:
  LinearCase(Isa isa, int threads, int64_t rows, int64_t columns, bool interleaved = false);

  // α is about `alpha` times the mean |W|. ranks: of low-rank factors, one a part, 0: none; their
  // product is about as large as a level of signs. Returns the slot that the variant is bound to.
  int32_t add_variant(int levels, double alpha, int64_t dense_rows = 0,
                      const std::vector<int64_t>& ranks = {});
  // What the variant's factors add to a row, as ref/linear has it: [parts · rows].
  std::vector<double> low_rank_product(int32_t slot, const float* x) const;
  // [m, columns]; values as the backend's activations hold them.
  std::vector<float> random_rows(int64_t m);
  // Runs the op on rows of `x`; the result as fp32 [m, out_columns], starting from `initial`.
  std::vector<float> run(const std::vector<float>& x, const std::vector<RowGroup>& groups,
                         Epilogue epilogue, const std::vector<float>* initial = nullptr);

  // Row-major index: part 0's rows, then part 1's (interleaved: gate, up).
  const std::vector<uint16_t>& weight() const { return weight_; }
  const VariantData& variant(int32_t slot) const { return data_[static_cast<size_t>(slot)]; }
  int64_t rows() const { return rows_; }  // of a part
  int64_t columns() const { return columns_; }
  int64_t out_columns(Epilogue epilogue) const;
  bool bf16() { return backend_->ops().activation_type() == DType::kBF16; }
  Backend& backend() { return *backend_; }

 private:
  const int64_t rows_, columns_;
  const int parts_;
  int64_t widest_;
  uint64_t state_ = 0x9e3779b97f4a7c15u;
  std::unique_ptr<Backend> backend_;
  std::vector<uint16_t> weight_;
  std::vector<VariantData> data_;
  std::vector<std::unique_ptr<VariantWeights>> variants_;

  uint64_t next();
  double normal();
};

inline constexpr double kMeanAbsolute = 0.02;  // of the random weights

inline void require(const Status& status) { CHECK(status.ok(), status.message().c_str()); }

inline std::vector<Isa> usable_isas() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    if (choose_isa(isa_name(isa)).ok()) out.push_back(isa);
  return out;
}

inline std::vector<ref::SignLevel> VariantData::levels() const {
  std::vector<ref::SignLevel> out;
  for (size_t l = 0; l < signs.size(); ++l) out.push_back({signs[l].data(), alpha[l].data()});
  return out;
}

inline uint64_t LinearCase::next() {  // splitmix64
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline double LinearCase::normal() {
  const double u = (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(next() >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * 3.14159265358979 * v);
}

inline LinearCase::LinearCase(Isa isa, int threads, int64_t rows, int64_t columns, bool interleaved)
    : rows_(rows), columns_(columns), parts_(interleaved ? 2 : 1), widest_(rows) {
  CpuBackendOptions options;
  options.threads = threads;
  options.isa = isa_name(isa);
  auto made = make_cpu_backend(options);
  require(made.status());
  backend_ = std::move(*made);
  WeightSpec spec{WeightKind::kMatrix, {{"a.weight", rows}}, columns, interleaved, -1};
  if (interleaved) spec.parts.push_back({"b.weight", rows});
  require(backend_->declare_weights({spec}));
  weight_.resize(static_cast<size_t>(parts_ * rows * columns));
  for (uint16_t& v : weight_)
    v = f32_to_bf16(static_cast<float>(normal() * kMeanAbsolute * 1.2533));
  for (int p = 0; p < parts_; ++p)
    require(backend_->put_rows(0, p, 0, rows, weight_.data() + p * rows * columns));
}

inline std::vector<double> LinearCase::low_rank_product(int32_t slot, const float* x) const {
  std::vector<double> y;
  for (int p = 0; p < parts_; ++p) {
    std::vector<double> part(static_cast<size_t>(rows_), 0.0);
    const VariantData& d = variant(slot);
    if (!d.low_rank.empty()) {
      const VariantData::LowRank& low = d.low_rank[static_cast<size_t>(p)];
      part = ref::low_rank_product(
          {low.rank, static_cast<double>(low.scale), low.a.data(), low.b.data()}, x, rows_,
          columns_);
    }
    y.insert(y.end(), part.begin(), part.end());
  }
  return y;
}

inline int32_t LinearCase::add_variant(int levels, double alpha, int64_t dense_rows,
                                       const std::vector<int64_t>& ranks) {
  VariantData d;
  VariantContent content;
  if (levels > 0) content.signs.push_back({0, levels});
  for (int p = 0; p < parts_ && dense_rows > 0; ++p) content.dense.push_back({0, p, dense_rows});
  for (size_t p = 0; p < ranks.size(); ++p)
    if (ranks[p] > 0) content.low_rank.push_back({0, static_cast<int>(p), ranks[p]});
  auto made = backend_->new_variant(content);
  require(made.status());
  std::unique_ptr<VariantWeights> v = std::move(*made);
  const int64_t row_bytes = (columns_ + 7) / 8;
  for (int l = 0; l < levels; ++l, alpha /= 2) {
    d.signs.emplace_back(static_cast<size_t>(parts_ * rows_ * columns_));
    d.alpha.emplace_back(static_cast<size_t>(parts_ * rows_));
    for (int8_t& s : d.signs.back()) s = next() & 1 ? 1 : -1;
    for (float& a : d.alpha.back())
      a = static_cast<float>(alpha * kMeanAbsolute *
                             (0.5 + static_cast<double>(next() % 1000) / 1000));
    for (int p = 0; p < parts_; ++p) {
      std::vector<uint8_t> bits(static_cast<size_t>(rows_ * row_bytes), 0);
      for (int64_t r = 0; r < rows_; ++r)
        for (int64_t c = 0; c < columns_; ++c)
          if (d.signs.back()[static_cast<size_t>((p * rows_ + r) * columns_ + c)] > 0)
            bits[static_cast<size_t>(r * row_bytes + c / 8)] |= static_cast<uint8_t>(1u << (c % 8));
      require(v->put_sign_rows(0, p, l, 0, rows_, bits.data()));
      require(v->put_alpha(0, p, l, d.alpha.back().data() + p * rows_));
    }
  }
  for (size_t p = 0; p < ranks.size(); ++p) {
    VariantData::LowRank low{ranks[p], 0.0f, {}, {}};
    const auto factor = [&](int64_t count) {
      std::vector<float> out(static_cast<size_t>(count));
      for (float& value : out) value = bf16_to_f32(f32_to_bf16(static_cast<float>(normal())));
      return out;
    };
    low.a = factor(low.rank * columns_);
    low.b = factor(rows_ * low.rank);
    low.scale =
        low.rank == 0
            ? 0.0f
            : static_cast<float>(0.01 * kMeanAbsolute / std::sqrt(static_cast<double>(low.rank)));
    if (low.rank > 0)
      require(v->put_low_rank(0, static_cast<int>(p), low.scale, low.a.data(), low.b.data()));
    d.low_rank.push_back(std::move(low));
  }
  if (dense_rows > 0) {
    d.dense_rows = dense_rows;
    d.dense.resize(static_cast<size_t>(parts_ * dense_rows * columns_));
    for (uint16_t& w : d.dense) w = f32_to_bf16(static_cast<float>(normal() * kMeanAbsolute));
    for (int p = 0; p < parts_; ++p) {
      require(v->put_dense_rows(0, p, 0, dense_rows, d.dense.data() + p * dense_rows * columns_));
    }
    widest_ = std::max(widest_, dense_rows);
  }
  require(v->finish());
  const auto slot = static_cast<int32_t>(variants_.size());
  backend_->ops().bind_slot(slot, v.get());
  variants_.push_back(std::move(v));
  data_.push_back(std::move(d));
  return slot;
}

inline std::vector<float> LinearCase::random_rows(int64_t m) {
  std::vector<float> x(static_cast<size_t>(m * columns_));
  for (float& v : x) {
    v = static_cast<float>(normal());
    if (bf16()) v = bf16_to_f32(f32_to_bf16(v));
  }
  return x;
}

inline int64_t LinearCase::out_columns(Epilogue epilogue) const {
  return epilogue == Epilogue::kSiluGate ? WeightSpec::pad(rows_) : widest_;
}

inline std::vector<float> LinearCase::run(const std::vector<float>& x,
                                          const std::vector<RowGroup>& groups, Epilogue epilogue,
                                          const std::vector<float>* initial) {
  Ops& ops = backend_->ops();
  const DType type = ops.activation_type();
  const int64_t m = static_cast<int64_t>(x.size()) / columns_;
  const int64_t stride = ops.row_stride(columns_), wide = out_columns(epilogue);
  Buffer in = std::move(*backend_->allocate(static_cast<size_t>(m * stride) * dtype_size(type)));
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < columns_; ++c) {
      const float v = x[static_cast<size_t>(r * columns_ + c)];
      if (type == DType::kBF16)
        in.as<uint16_t>()[r * stride + c] = f32_to_bf16(v);
      else
        in.as<float>()[r * stride + c] = v;
    }
  const DType out_type = epilogue == Epilogue::kSiluGate ? type : DType::kF32;
  Buffer out = std::move(*backend_->allocate(static_cast<size_t>(m * wide) * dtype_size(out_type)));
  if (initial != nullptr) std::memcpy(out.data(), initial->data(), initial->size() * sizeof(float));
  ops.linear(matrix_view(out.data(), out_type, m, wide, wide),
             matrix_view(in.data(), type, m, columns_, stride), 0, groups, epilogue);
  std::vector<float> y(static_cast<size_t>(m * wide));
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = out_type == DType::kBF16 ? bf16_to_f32(out.as<uint16_t>()[i]) : out.as<float>()[i];
  return y;
}

}  // namespace deltad::testing
