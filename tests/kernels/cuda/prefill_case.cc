#include "tests/kernels/cuda/prefill_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels/cuda/linear_prefill_rows.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/part_of_groups.h"

namespace deltad::cuda {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::Report;

namespace {

template <class Params>
emulator::Report launch(const Launcher& launcher, const char* kernel, const Launch& shape,
                        const Params& params, const emulator::Options& options) {
  return launcher(kernel, shape, std::as_bytes(std::span(&params, 1)), options);
}

}  // namespace

double rounded_to_f16(double v) {
  if (v == 0 || std::abs(v) >= 65520) return v == 0 ? v : std::copysign(INFINITY, v);
  const int exponent = std::max(std::ilogb(v), -14);
  return std::ldexp(std::nearbyint(std::ldexp(v, 10 - exponent)), exponent - 10);
}

PrefillCase::PrefillCase(WeightShape shape, uint32_t seed, Launcher launcher)
    : weight_(std::move(shape), seed, launcher), launcher_(std::move(launcher)) {
  const int32_t outputs = weight_.shape().outputs();
  counts_.resize(static_cast<size_t>(outputs / 16));
  const DeviceBuffer<uint32_t> counts("counts", counts_.size() * 256, Access::kWrite);
  const WeightRangeParams p = {weight_.tiles().data(), counts.data(), outputs,
                               weight_.shape().columns};
  const Report report = launch(launcher_, kWeightRangeKernel, weight_range_launch(p), p, {});
  EXPECT_TRUE(report.ok()) << report.text();
  for (size_t i = 0; i < counts_.size(); ++i) {
    std::copy_n(counts.data() + 256 * i, 256, counts_[i].begin());
  }
  range_ = weight_range(counts_);
}

std::vector<uint8_t> PrefillCase::apart(int32_t slot) const {
  const WeightShape& shape = weight_.shape();
  std::vector<FusedPart> parts;
  for (size_t p = 0; p < shape.part_rows.size(); ++p) {
    parts.push_back({shape.place(p), shape.part_rows[p]});
  }
  std::vector<const float*> alpha;
  const SignSlot own = slot < 0 ? SignSlot{} : weight_.slots()[static_cast<size_t>(slot)];
  for (size_t l = 0; l < kMaxSignLevels && own.signs[l] != nullptr; ++l) {
    alpha.push_back(own.alpha[l]);
  }
  return prefill_apart(counts_, range_, shape.columns, parts, alpha);
}

DecodeCase::Run PrefillCase::run(const std::vector<float>& x, const std::vector<RowGroup>& groups,
                                 const LinearPrefillKernel& kernel, const Call& call) {
  const int32_t m = groups.back().end_row, columns = weight_.shape().columns;
  const int32_t outputs = weight_.shape().outputs();
  const auto rows = static_cast<size_t>(m);
  const auto group_count = static_cast<int32_t>(groups.size());
  DecodeCase::Run run;
  emulator::Options options = call.options;
  options.overlaps_previous = true;

  const int32_t stride = bf16_stride(columns);
  const DeviceBuffer<uint16_t> x_buffer("x", rows_as_bf16(x, m, columns), Access::kFresh);
  RowGroups table{};
  for (const RowGroup& group : groups) table.group[table.count++] = group;
  const DeviceBuffer<RowGroups> group_buffer("groups", std::vector<RowGroups>{table},
                                             Access::kFresh);
  const DeviceBuffer<SignSlot> slots("slots", weight_.slots(), Access::kFresh);

  std::vector<uint8_t> apart_values;
  for (size_t v = 0; v < slots.size(); ++v) {
    const std::vector<uint8_t> own = apart(static_cast<int32_t>(v));
    apart_values.insert(apart_values.end(), own.begin(), own.end());
  }
  const DeviceBuffer<uint8_t> apart_buffer("apart", apart_values, Access::kFresh);

  const int32_t packed_rows = prefill_packed_rows(m, group_count);
  DeviceBuffer<uint4> packed("packed rows",
                             static_cast<size_t>(prefill_packed_size(packed_rows, columns)),
                             Access::kWrite);
  DeviceBuffer<float> scale("row scale", rows, Access::kWrite);
  const PrefillRowsParams pack = {
      x_buffer.data(), group_buffer.data(), packed.data(), scale.data(), stride, m,
      columns,         packed_rows};
  run.report = launch(launcher_, kPrefillRowsKernel, prefill_rows_launch(pack), pack, options);
  if (!run.report.ok()) return run;
  packed.set_access(Access::kFresh);
  scale.set_access(Access::kFresh);

  const bool gated = call.epilogue == LinearPrefillEpilogue::kSiluGate;
  const auto width = static_cast<size_t>(gated ? outputs / 2 : outputs);
  const DeviceBuffer<float> out("out", gated ? 0 : rows * width, Access::kWrite);
  const DeviceBuffer<uint16_t> gated_out("gated out", gated ? rows * width : 0, Access::kWrite);
  if (call.initial != nullptr) std::copy(call.initial->begin(), call.initial->end(), out.data());
  LinearPrefillParams p{};
  p.x = packed.data();
  p.x_scale = scale.data();
  p.w = weight_.tiles().data();
  p.slots = slots.data();
  p.apart = apart_buffer.data();
  p.apart_stride = apart_entries(outputs);
  p.groups = group_buffer.data();
  p.out = gated ? static_cast<void*>(gated_out.data()) : out.data();
  p.out_stride = static_cast<int64_t>(width);
  p.packed_rows = packed_rows;
  p.outputs = outputs;
  p.columns = columns;
  p.w_exponent = range_.exponent;
  p.w_factors = prefill_factors(range_.exponent);
  p.epilogue = call.epilogue;
  Report report =
      launch(launcher_, kernel.name, linear_prefill_launch(p, kernel, m, group_count), p, options);
  report.sites.insert(report.sites.end(), run.report.sites.begin(), run.report.sites.end());
  run.report = std::move(report);
  if (!run.report.ok()) return run;
  if (gated) {
    for (uint16_t v : gated_out.values()) run.out.push_back(bf16_to_f32(v));
  } else {
    run.out = out.values();
  }
  return run;
}

const PrefillCase::Rounding& PrefillCase::rounding(int32_t slot) {
  const auto found = roundings_.find(slot);
  if (found != roundings_.end()) return found->second;
  const int32_t outputs = weight_.shape().outputs(), columns = weight_.shape().columns;
  const int32_t chunks = chunks_of(columns), s = range_.exponent;
  const SignSlot own = slot < 0 ? SignSlot{} : weight_.slots()[static_cast<size_t>(slot)];
  const std::vector<uint8_t> by_itself = apart(slot);
  Rounding& r = roundings_[slot];
  for (int32_t o = 0; o < outputs; ++o) {
    // By mma, both halves of a block's outputs are multiplied apart if one is.
    const auto half = static_cast<size_t>(o / kApartOutputs);
    const bool other_apart = (half ^ 1) < by_itself.size() && by_itself[half ^ 1] != 0;
    const bool may_be_apart = by_itself[half] != 0 || other_apart;
    const bool must_be_apart = by_itself[half] != 0;
    for (int32_t c = 0; c < columns; ++c) {
      // linear_tiles.h: the lane's element of the step; the sign's bit of its lane's word.
      const int32_t chunk = o / 8 * chunks + c / kChunk, k = c % kChunk;
      const int32_t lane = o % 8 * 4 + k % 8 / 2, element = k % kStep / 8 * 2 + k % 2;
      const auto at =
          static_cast<size_t>(((chunk * kChunkSteps + k / kStep) * 32 + lane) * 8 + element);
      const double w = bf16_to_f32(weight_.tiles()[at]);
      double exact = w, delta = 0;
      for (size_t l = 0; l < kMaxSignLevels && own.signs[l] != nullptr; ++l) {
        const int32_t word = (chunk * 32 + o % 8 * 4 + k % 128 / 32) * 2 + k / 128;
        const bool plus = static_cast<const uint32_t*>(own.signs[l])[word] >> (k % 32) & 1;
        const double alpha = plus ? own.alpha[l][o] : -own.alpha[l][o];
        exact += alpha;
        const double rounded = rounded_to_f16(std::ldexp(alpha, s));
        delta = l == 0 ? rounded : rounded_to_f16(delta + rounded);
      }
      // Where fp16 is subnormal, W's last digit is eight times as large.
      const double scaled = rounded_to_f16(std::ldexp(w, s));
      const double lost = std::abs(scaled) < 0x1p-14 ? 0x1p-22 : 0;
      double size = 0, residue = 0;
      if (may_be_apart) {
        size = std::abs(w) + std::abs(exact - w);
        residue = std::abs(exact - std::ldexp(scaled + delta, -s));
      }
      if (!must_be_apart) {
        size = std::max(size, std::abs(exact));
        const double sum = rounded_to_f16(scaled + delta);
        residue = std::max(residue, std::abs(exact - std::ldexp(sum, -s)));
      }
      r.size.push_back(static_cast<float>(size));
      r.residue.push_back(static_cast<float>(residue + std::ldexp(lost, -s)));
    }
  }
  return r;
}

DecodeCase::Expected PrefillCase::expected(const float* x, int32_t slot) {
  DecodeCase::Expected all = weight_.expected(x, slot);
  const Rounding& r = rounding(slot);
  const auto columns = static_cast<size_t>(weight_.shape().columns);
  const double u = std::ldexp(1, -24);
  // Sums of exact products in fp32, in any order: Higham's γ.
  const double steps = 2 * static_cast<double>(columns) + 2, gamma = steps * u / (1 - steps * u);
  double largest = 0;
  for (size_t c = 0; c < columns; ++c) largest = std::max(largest, std::abs(double{x[c]}));
  // Half of fp16's last digit, for x so small beside the row's largest that it is subnormal.
  const double digit =
      largest > 0 ? std::ldexp(1, std::ilogb(largest) - kPrefillRowExponent - 25) : 0;
  for (size_t o = 0; o < all.y.size(); ++o) {
    double size = 0, residue = 0, weights = 0;
    for (size_t c = 0; c < columns; ++c) {
      const double magnitude = std::abs(double{x[c]});
      size += r.size[o * columns + c] * magnitude;
      residue += r.residue[o * columns + c] * magnitude;
      weights += r.size[o * columns + c];
    }
    all.error[o] = gamma * (size + residue) + residue + weights * digit;
  }
  return all;
}

void expect_oracle(PrefillCase& c, const std::vector<float>& x, const std::vector<RowGroup>& groups,
                   const PrefillCase::Call& call, const std::vector<float>& out) {
  const bool gated = call.epilogue == LinearPrefillEpilogue::kSiluGate;
  const WeightShape& shape = c.weight().shape();
  const int32_t m = groups.back().end_row, outputs = shape.outputs();
  const int32_t width = gated ? outputs / 2 : outputs;
  const double u = std::ldexp(1, -24);
  ASSERT_EQ(out.size(), static_cast<size_t>(m * width));
  for (int32_t row = 0; row < m; ++row) {
    const DecodeCase::Expected want =
        c.expected(x.data() + static_cast<ptrdiff_t>(row) * shape.columns, slot_of(groups, row));
    for (int32_t o = 0; o < width; ++o) {
      const auto at = static_cast<size_t>(row * width + o);
      double y = want.y[static_cast<size_t>(o)], error = want.error[static_cast<size_t>(o)];
      if (gated) {
        std::tie(y, error) = gated_expected(want, o);
      } else if (call.epilogue == LinearPrefillEpilogue::kAddResidual) {
        y += (*call.initial)[at];
        error += u * (std::abs(y) + error);
      }
      ASSERT_NEAR(out[at], y, error) << "row " << row << " output " << o;
    }
  }
}

}  // namespace deltad::cuda
