// The backend's linear layers: rows of prompts and generated ones, of every kind of variant, in any
// mixture; a row's result is its own. Runs on a card, too.
#include <cmath>
#include <memory>
#include <vector>

#include "tensor/float16.h"
#include "tests/cuda/emulated_world.h"

namespace deltad::testing {
namespace {

constexpr int64_t kColumns = 72, kFirstRows = 40, kSecondRows = 16;
constexpr int64_t kOutputs = 48 + kSecondRows;  // of the first part, padded, and the second

// A value of its own for each place, of few bits.
float value_at(int64_t seed, int64_t i) {
  return static_cast<float>((seed * 37 + i * 101 + i * i * 7) % 61 - 30) / 32;
}
std::vector<float> values_of(int64_t seed, int64_t count, float scale) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(bf16_to_f32(f32_to_bf16(value_at(seed, i) * scale)));
  return out;
}
std::vector<uint16_t> as_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float v : values) out.push_back(f32_to_bf16(v));
  return out;
}
int64_t rows_of_part(int part) { return part == 0 ? kFirstRows : kSecondRows; }

// What a variant does to the two parts.
struct Change {
  std::vector<float> alphas = {};  // a level each
  bool replaces_first = false;
  bool factors = false;
};

class CudaLinear : public EmulatedGpuTest {
 protected:
  void SetUp() override {
    EmulatedGpuTest::SetUp();
    auto made = make_cuda_backend({0, 1});
    ASSERT_TRUE(made.ok()) << made.status().message();
    backend_ = std::move(*made);
    const WeightSpec spec{WeightKind::kMatrix, {{"a", kFirstRows}, {"b", kSecondRows}}, kColumns};
    ASSERT_TRUE(backend_->declare_weights({spec}).ok());
    for (int part = 0; part < 2; ++part)
      ASSERT_TRUE(
          backend_->put_rows(0, part, 0, rows_of_part(part), base_values(part).data()).ok());
    ASSERT_TRUE(backend_->finish_weights().ok());
  }
  void TearDown() override {
    variants_.clear();
    backend_.reset();
    EmulatedGpuTest::TearDown();
  }

  static std::vector<uint16_t> base_values(int part) {
    return as_bf16(values_of(part, rows_of_part(part) * kColumns, 0.125f));
  }
  static std::vector<uint16_t> own_values() {
    return as_bf16(values_of(9, kFirstRows * kColumns, 2));
  }
  static bool plus(int part, size_t level, int64_t row, int64_t column) {
    return (row * 5 + column * 3 + part + static_cast<int64_t>(level) * (row + column / 7)) % 4 < 2;
  }

  Result<std::unique_ptr<VariantWeights>> load(const Change& change) {
    VariantContent content;
    if (!change.alphas.empty())
      content.signs.push_back({0, static_cast<int>(change.alphas.size())});
    if (change.replaces_first) content.dense.push_back({0, 0, kFirstRows});
    if (change.factors) content.low_rank.push_back({0, 1, 3});
    ASSIGN_OR_RETURN(std::unique_ptr<VariantWeights> made, backend_->new_variant(content));
    for (int part = 0; part < 2; ++part) {
      const int64_t rows = rows_of_part(part);
      for (size_t level = 0; level < change.alphas.size(); ++level) {
        std::vector<uint8_t> bits(static_cast<size_t>(rows * kColumns / 8));
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < kColumns; ++c)
            if (plus(part, level, r, c))
              bits[static_cast<size_t>((r * kColumns + c) / 8)] |= static_cast<uint8_t>(1 << c % 8);
        const int l = static_cast<int>(level);
        RETURN_IF_ERROR(made->put_sign_rows(0, part, l, 0, rows, bits.data()));
        const std::vector<float> alpha(static_cast<size_t>(rows), change.alphas[level]);
        RETURN_IF_ERROR(made->put_alpha(0, part, l, alpha.data()));
      }
    }
    if (change.replaces_first)
      RETURN_IF_ERROR(made->put_dense_rows(0, 0, 0, kFirstRows, own_values().data()));
    if (change.factors)
      RETURN_IF_ERROR(made->put_low_rank(0, 1, 0.5f, values_of(20, 3 * kColumns, 1).data(),
                                         values_of(21, kSecondRows * 3, 1).data()));
    RETURN_IF_ERROR(made->finish());
    return made;
  }
  void add(const Change& change) {
    auto made = load(change);
    ASSERT_TRUE(made.ok()) << made.status().message();
    variants_.push_back(std::move(*made));
    changes_.push_back(change);
  }

  struct Rows {
    int32_t slot;  // −1: the base
    int32_t rows;
    bool generated;
    int seed;  // of their activations; row r's are those of seed + r
  };
  // One step with these rows, sorted by slot; outputs by row, in their order.
  std::vector<std::vector<float>> run(const std::vector<Rows>& batch,
                                      const std::vector<std::vector<float>>* given = nullptr) {
    const Ops& layout = backend_->ops();
    const int64_t stride = layout.row_stride(kColumns);
    static const int32_t block = 0;
    std::vector<uint16_t> x;
    std::vector<int32_t> ids;
    std::vector<RowGroup> groups;
    std::vector<SequenceSpan> spans;
    for (const Rows& rows : batch) {
      const auto first = static_cast<int32_t>(ids.size());
      for (int32_t r = 0; r < rows.rows; ++r) {
        const std::vector<float> values =
            given ? (*given)[ids.size()] : values_of(100 + rows.seed + r, kColumns, 4);
        for (const uint16_t v : as_bf16(values)) x.push_back(v);
        x.resize(x.size() + static_cast<size_t>(stride - kColumns));
        ids.push_back(0);
      }
      const auto end = static_cast<int32_t>(ids.size());
      spans.push_back({first, end, 0, &block, rows.generated});
      if (!groups.empty() && groups.back().slot == rows.slot)
        groups.back().end_row = end;
      else
        groups.push_back({first, end, rows.slot});
    }
    const auto m = static_cast<int64_t>(ids.size());
    Buffer in = std::move(*backend_->allocate(x.size() * 2));
    Buffer out = std::move(*backend_->allocate(static_cast<size_t>(m * kOutputs) * 4));
    // Rows lie as the backend has them, as they would after embed.
    std::vector<uint16_t> placed;
    for (const size_t row : in_step_order(batch)) {
      const auto from = x.begin() + static_cast<int64_t>(row) * stride;
      placed.insert(placed.end(), from, from + stride);
    }
    EXPECT_TRUE(backend_->upload(in.data(), placed.data(), in.bytes()).ok());
    Ops& ops = backend_->ops();
    for (size_t s = 0; s < variants_.size(); ++s)
      ops.bind_slot(static_cast<int32_t>(s), variants_[s].get());
    ops.begin_step({ids, groups, spans, {}, {}});
    const TensorView y =
        matrix_view(out.data(), DType::kF32, m, kOutputs, kOutputs, DeviceKind::kCuda);
    ops.linear(y, matrix_view(in.data(), DType::kBF16, m, kColumns, stride, DeviceKind::kCuda), 0,
               groups, Epilogue::kStore);
    std::vector<std::vector<float>> result;
    const auto values = ops.download(y);
    EXPECT_TRUE(values.ok());
    for (int64_t r = 0; values.ok() && r < m; ++r)
      result.emplace_back(values->row<float>(r), values->row<float>(r) + kOutputs);
    EXPECT_TRUE(ops.end_step({}).ok());
    return result;
  }
  // Which of a batch's rows come first in the backend: the generated ones.
  static std::vector<size_t> in_step_order(const std::vector<Rows>& batch) {
    std::vector<size_t> order;
    for (const bool generated : {true, false}) {
      size_t row = 0;
      for (const Rows& rows : batch)
        for (int32_t r = 0; r < rows.rows; ++r, ++row)
          if (rows.generated == generated) order.push_back(row);
    }
    return order;
  }

  // What a row should be, and how far fp16's digits let it be off.
  void expect_right(const std::vector<float>& got, int32_t slot, const std::vector<float>& x) {
    const Change change = slot < 0 ? Change{} : changes_[static_cast<size_t>(slot)];
    std::vector<float> t(3);
    const std::vector<float> a = values_of(20, 3 * kColumns, 1),
                             b = values_of(21, kSecondRows * 3, 1);
    for (size_t k = 0; k < 3; ++k)
      for (size_t c = 0; c < kColumns; ++c) t[k] += 0.5f * a[k * kColumns + c] * x[c];
    for (int part = 0; part < 2; ++part) {
      const bool own = part == 0 && change.replaces_first;
      const std::vector<uint16_t> w = own ? own_values() : base_values(part);
      for (int64_t r = 0; r < rows_of_part(part); ++r) {
        double y = 0, norm = 0;
        for (int64_t c = 0; c < kColumns; ++c) {
          double weight = bf16_to_f32(w[static_cast<size_t>(r * kColumns + c)]);
          norm += std::fabs(weight * x[static_cast<size_t>(c)]);
          for (size_t l = 0; l < change.alphas.size(); ++l) {
            weight += (plus(part, l, r, c) ? 1 : -1) * change.alphas[l];
            norm += std::fabs(change.alphas[l] * x[static_cast<size_t>(c)]);
          }
          y += weight * x[static_cast<size_t>(c)];
        }
        if (part == 1 && change.factors)
          for (int64_t k = 0; k < 3; ++k) {
            const float term = b[static_cast<size_t>(r * 3 + k)] * t[static_cast<size_t>(k)];
            y += term;
            norm += std::fabs(term);
          }
        const int64_t output = part == 0 ? r : 48 + r;
        ASSERT_NEAR(got[static_cast<size_t>(output)], y, norm / 1024)
            << "slot " << slot << " output " << output;
      }
    }
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<VariantWeights>> variants_;
  std::vector<Change> changes_;
};

TEST_F(CudaLinear, GivesARowWhatItGetsAlone) {
  add({.alphas = {0.01f}});
  add({.alphas = {0.0001f}});  // multiplied apart
  add({.alphas = {0.02f, 0.01f, 0.005f}, .replaces_first = true});
  add({.alphas = {0.01f}, .factors = true});
  const std::vector<Rows> batch = {{-1, 9, false, 0},  {-1, 1, true, 20}, {0, 1, true, 30},
                                   {0, 5, false, 40},  {1, 2, false, 50}, {2, 3, false, 60},
                                   {2, 2, true, 70},   {3, 1, true, 80},  {3, 2, false, 85},
                                   {-1, 3, false, 95}, {-1, 2, true, 99}};
  const auto together = run(batch);
  size_t row = 0;
  for (const Rows& rows : batch)
    for (int32_t r = 0; r < rows.rows; ++r, ++row) {
      SCOPED_TRACE(row);
      expect_right(together[row], rows.slot, values_of(100 + rows.seed + r, kColumns, 4));
      const auto alone = run({{rows.slot, 1, rows.generated, rows.seed + r}});
      EXPECT_EQ(together[row], alone[0]);
    }
}

// Only the kernels of prompts round activations to fp16, beside the largest of their row.
TEST_F(CudaLinear, TakesTheKernelsOfTheRowsRole) {
  std::vector<float> x(kColumns, 0.25f);
  int64_t zero = 0;
  while (base_values(1)[static_cast<size_t>(zero)] != 0) ++zero;  // in the part's first row
  ASSERT_LT(zero, kColumns);
  x[static_cast<size_t>(zero)] = 0x1p50f;
  const std::vector<std::vector<float>> given = {x, x};
  const auto rows = run({{-1, 1, false, 0}, {-1, 1, true, 0}}, &given);
  EXPECT_EQ(rows[0][48], 0);
  EXPECT_NE(rows[1][48], 0);
}

TEST_F(CudaLinear, RefusesScalesThatTheKernelsOfPromptsCannotHold) {
  EXPECT_TRUE(load({.alphas = {5, 2}}).ok());
  const auto large = load({.alphas = {5, 4}});
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.status().message().find("a: the scales of a row's signs add up to 9;"),
            std::string::npos)
      << large.status().message();
}

}  // namespace
}  // namespace deltad::testing
