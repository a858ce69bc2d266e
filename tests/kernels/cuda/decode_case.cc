#include "tests/kernels/cuda/decode_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "kernels/cuda/repack.h"
#include "kernels/cuda/sign_planes.h"
#include "kernels/ref/linear.h"
#include "tensor/float16.h"

namespace deltad::cuda {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::Report;

int32_t WeightShape::outputs() const {
  int32_t sum = 0;
  for (int32_t rows : part_rows) sum += padded_outputs(rows);
  return sum;
}

TileRows WeightShape::place(size_t part) const {
  if (interleaved) return {static_cast<int32_t>(part), static_cast<int32_t>(part_rows.size())};
  int32_t first = 0;
  for (size_t p = 0; p < part; ++p) first += padded_outputs(part_rows[p]) / 16;
  return {first, 1};
}

int32_t WeightShape::output_of(size_t part, int32_t row) const {
  const TileRows where = place(part);
  return 16 * (where.first + row / 16 * where.step) + row % 16;
}

DecodeCase::DecodeCase(WeightShape shape, uint32_t seed, Launcher launcher)
    : shape_(std::move(shape)), launcher_(std::move(launcher)), random_(seed) {
  std::vector<std::vector<uint16_t>> parts;
  for (int32_t rows : shape_.part_rows) parts.push_back(random_part(rows));
  base_ = make_weight(shape_, std::move(parts));
}

std::vector<uint16_t> DecodeCase::random_part(int32_t rows) {
  std::normal_distribution<float> normal(0, 0.025f);  // mean |W| 0.02
  std::vector<uint16_t> w(static_cast<size_t>(rows * shape_.columns));
  for (uint16_t& v : w) v = f32_to_bf16(normal(random_));
  return w;
}

DecodeCase::Weight DecodeCase::make_weight(const WeightShape& shape,
                                           std::vector<std::vector<uint16_t>> parts) {
  Weight weight = {shape, std::move(parts), nullptr};
  weight.tiles = std::make_unique<DeviceBuffer<uint16_t>>(
      "w", static_cast<size_t>(8 * base_tiles_size(shape.outputs(), shape.columns)),
      Access::kWrite);
  for (size_t p = 0; p < shape.part_rows.size(); ++p) {
    const DeviceBuffer<uint16_t> in("part", weight.parts[p]);
    const RepackBaseParams params = {in.data(), weight.tiles->data(), shape.part_rows[p],
                                     shape.columns, shape.place(p)};
    const Report report = launch(kRepackBaseKernel, repack_base_launch(params), params, {});
    EXPECT_TRUE(report.ok()) << report.text();
  }
  weight.tiles->set_access(Access::kRead);
  return weight;
}

int32_t DecodeCase::add_dense(int32_t rows, int32_t levels, double alpha) {
  const WeightShape shape = {{rows}, shape_.columns, shape_.interleaved};
  const int32_t slot = add_variant(shape, levels, alpha, false);
  variants_.back().dense = std::make_unique<Weight>(make_weight(shape, {random_part(rows)}));
  return slot;
}

int32_t DecodeCase::replace_parts(const std::vector<bool>& replaced, int32_t levels, double alpha) {
  const int32_t slot = add_variant(shape_, levels, alpha, false);
  std::vector<std::vector<uint16_t>> parts = base_.parts;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (replaced[p]) parts[p] = random_part(shape_.part_rows[p]);
  }
  variants_.back().dense = std::make_unique<Weight>(make_weight(shape_, std::move(parts)));
  return slot;
}

int32_t DecodeCase::widest(const std::vector<RowGroup>& groups) const {
  int32_t most = shape_.outputs();
  for (const RowGroup& group : groups) {
    most = std::max(most, weight_of(group.slot).shape.outputs());
  }
  return most;
}

int32_t DecodeCase::add_variant(const WeightShape& shape, int32_t levels, double alpha,
                                bool one_alpha) {
  const auto outputs = static_cast<size_t>(shape.outputs());
  const auto row_bytes = static_cast<size_t>((shape.columns + 7) / 8);
  std::uniform_real_distribution<double> factor(0.5, 1.5);
  std::vector<Level> variant(static_cast<size_t>(levels));
  for (Level& level : variant) {
    std::vector<float> fused(outputs, NAN);  // the padding is nobody's
    level.tiles = std::make_unique<DeviceBuffer<uint2>>(
        "signs", static_cast<size_t>(sign_tiles_size(shape.outputs(), shape.columns)),
        Access::kWrite);
    for (size_t p = 0; p < shape.part_rows.size(); ++p) {
      const auto rows = static_cast<size_t>(shape.part_rows[p]);
      std::vector<int8_t> signs;
      std::vector<uint8_t> bits(rows * row_bytes, 0);
      std::vector<float> alphas;
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < static_cast<size_t>(shape.columns); ++c) {
          const bool plus = random_() % 2 == 1;
          signs.push_back(plus ? 1 : -1);
          if (plus) bits[r * row_bytes + c / 8] |= static_cast<uint8_t>(1u << (c % 8));
        }
        const double own = one_alpha ? alpha : alpha * factor(random_);
        alphas.push_back(static_cast<float>(own));
        fused[static_cast<size_t>(shape.output_of(p, static_cast<int32_t>(r)))] = alphas.back();
      }
      const DeviceBuffer<uint8_t> in("sign part", bits);
      const RepackSignsParams params = {in.data(), level.tiles->data(), shape.part_rows[p],
                                        shape.columns, shape.place(p)};
      const Report report = launch(kRepackSignsKernel, repack_signs_launch(params), params, {});
      EXPECT_TRUE(report.ok()) << report.text();
      level.signs.push_back(std::move(signs));
      level.alpha.push_back(std::move(alphas));
    }
    level.tiles->set_access(Access::kRead);
    for (float& a : fused) a = std::isnan(a) ? 0.0f : a;
    level.device_alpha = std::make_unique<DeviceBuffer<float>>("alpha", fused);
    alpha /= 3;  // the next level's residual is smaller
  }
  variants_.push_back({std::move(variant), nullptr});
  return static_cast<int32_t>(variants_.size()) - 1;
}

void DecodeCase::scale_alpha(int32_t slot, size_t part, float factor) {
  for (Level& level : variants_[static_cast<size_t>(slot)].levels) {
    for (size_t r = 0; r < level.alpha[part].size(); ++r) {
      level.alpha[part][r] *= factor;
      level.device_alpha->data()[shape_.output_of(part, static_cast<int32_t>(r))] *= factor;
    }
  }
}

std::vector<float> DecodeCase::random_rows(int32_t m) {
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int32_t r = 0; r < m; ++r) {
    const float outlier = r % 3 == 1 ? 30.0f : 1.0f;
    for (int32_t c = 0; c < shape_.columns; ++c) {
      const float v = normal(random_) * (c % 97 == 5 ? outlier : 1.0f);
      x.push_back(bf16_to_f32(f32_to_bf16(v)));
    }
  }
  return x;
}

std::vector<uint16_t> rows_as_bf16(const std::vector<float>& x, int32_t rows, int32_t columns) {
  const auto wide = static_cast<size_t>(columns),
             stride = static_cast<size_t>(bf16_stride(columns));
  std::vector<uint16_t> bits(static_cast<size_t>(rows) * stride, 0);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (size_t c = 0; c < wide; ++c) bits[r * stride + c] = f32_to_bf16(x[r * wide + c]);
  }
  return bits;
}

std::pair<double, double> gated_expected(const DecodeCase::Expected& want, int32_t o) {
  const auto gate = static_cast<size_t>(o / 16 * 32 + o % 16), up = gate + 16;
  const double silu = ref::silu(want.y[gate]), y = silu * want.y[up];
  // silu's slope is below 1.1; expf, a sum, a quotient and a product of fp32; one of bf16.
  double error = 8 * std::ldexp(1, -24) * std::abs(y) +
                 1.1 * want.error[gate] * (std::abs(want.y[up]) + want.error[up]) +
                 std::abs(silu) * want.error[up];
  error += std::ldexp(1, -8) * (std::abs(y) + error);
  return {y, error};
}

std::vector<SignSlot> DecodeCase::slots() const {
  std::vector<SignSlot> slots;
  for (const Variant& variant : variants_) {
    SignSlot slot{};
    for (size_t l = 0; l < variant.levels.size(); ++l) {
      slot.signs[l] = variant.levels[l].tiles->data();
      slot.alpha[l] = variant.levels[l].device_alpha->data();
    }
    slots.push_back(slot);
  }
  return slots;
}

DecodeCase::Run DecodeCase::run(const std::vector<float>& x, const std::vector<RowGroup>& groups,
                                const Call& call) {
  const int32_t m = groups.back().end_row, columns = shape_.columns, outputs = widest(groups);
  const auto rows = static_cast<size_t>(m);
  Run run;
  emulator::Options options = call.options;
  options.overlaps_previous = true;

  const int32_t stride = bf16_stride(columns);
  const DeviceBuffer<uint16_t> x_buffer("x", rows_as_bf16(x, m, columns), Access::kFresh);

  int32_t levels = 0;
  RowGroups table{};
  for (const RowGroup& group : groups) {
    table.group[table.count++] = group;
    if (group.slot < 0) continue;
    levels = std::max(levels, static_cast<int32_t>(variant(group.slot)->levels.size()));
  }
  const LinearKernel kernel = linear_decode_kernel(m, levels);
  int32_t dense_tiles = 0;
  for (const RowGroup& group : groups) {
    if (group.slot >= 0 && variant(group.slot)->dense) {
      dense_tiles += row_tiles(group.end_row - group.first_row, kernel.block_rows);
    }
  }
  const DeviceBuffer<RowGroups> group_buffer("groups", std::vector<RowGroups>{table},
                                             Access::kFresh);
  std::vector<DenseSlot> dense_values;
  for (const Variant& variant : variants_) {
    dense_values.push_back({});
    if (variant.dense) {
      dense_values.back() = {variant.dense->tiles->data(), variant.dense->shape.outputs()};
    }
  }
  const DeviceBuffer<SignSlot> slots("slots", this->slots(), Access::kFresh);
  const DeviceBuffer<DenseSlot> dense("dense", dense_values, Access::kFresh);

  const DeviceBuffer<uint4> planes("planes", static_cast<size_t>(planes_size(m, columns)),
                                   Access::kWrite);
  const DeviceBuffer<float> scale("plane scale", rows, Access::kWrite);
  const DeviceBuffer<int32_t> sum("plane sum", rows, Access::kWrite);
  if (levels > 0) {
    const SignPlanesParams p = {x_buffer.data(), planes.data(), scale.data(), sum.data(), stride, m,
                                columns};
    run.report = launch(kSignPlanesKernel, sign_planes_launch(p), p, options);
    if (!run.report.ok()) return run;
  }

  const bool gated = call.epilogue == LinearEpilogue::kSiluGate;
  const bool rotary = call.epilogue == LinearEpilogue::kRotary;
  const size_t width = static_cast<size_t>(gated ? outputs / 2 : outputs);
  const int32_t splits =
      call.splits > 0 ? call.splits : linear_decode_splits(shape_.outputs(), columns);
  const auto parts = static_cast<size_t>(splits) * rows * static_cast<size_t>(outputs);
  const DeviceBuffer<float> out("out", gated || rotary ? 0 : rows * width, Access::kWrite);
  const DeviceBuffer<uint16_t> gated_out("gated out", gated ? rows * width : 0, Access::kWrite);
  if (call.initial != nullptr) std::copy(call.initial->begin(), call.initial->end(), out.data());
  const bool leaves_parts = splits > 1 || (rotary && linear_head_blocks(call.rope->head_dim) > 1);
  const DeviceBuffer<float> base_parts("base parts", leaves_parts ? parts : 0, Access::kMessage);
  const DeviceBuffer<int32_t> sign_parts(
      "sign parts", leaves_parts ? parts * static_cast<size_t>(kernel.levels) : 0,
      Access::kMessage);

  LinearParams p{};
  p.x = x_buffer.data();
  p.w = base_.tiles->data();
  p.slots = slots.data();
  p.dense = dense_tiles > 0 ? dense.data() : nullptr;
  p.planes = planes.data();
  p.plane_scale = scale.data();
  p.plane_sum = sum.data();
  p.groups = group_buffer.data();
  p.out = gated ? static_cast<void*>(gated_out.data()) : out.data();
  p.base_parts = base_parts.data();
  p.sign_parts = sign_parts.data();
  p.x_stride = stride;
  p.out_stride = static_cast<int64_t>(width);
  p.rows = m;
  p.outputs = shape_.outputs();
  p.dense_outputs = dense_tiles > 0 ? outputs : 0;
  p.dense_tiles = dense_tiles + call.spare_tiles;
  p.columns = columns;
  p.splits = splits;
  p.epilogue = call.epilogue;
  if (rotary) p.rope = *call.rope;
  const Launch shape = linear_decode_launch(p, kernel);
  const DeviceBuffer<int32_t> arrivals(
      "arrivals", std::vector<int32_t>(shape.grid.x * shape.grid.y, 0), Access::kMessage);
  p.arrivals = arrivals.data();
  Report report = launch(kernel.name, shape, p, options);
  report.sites.insert(report.sites.end(), run.report.sites.begin(), run.report.sites.end());
  run.report = std::move(report);
  if (!run.report.ok()) return run;
  for (size_t i = 0; i < arrivals.size(); ++i) EXPECT_EQ(arrivals.data()[i], 0);
  if (gated) {
    for (uint16_t v : gated_out.values()) run.out.push_back(bf16_to_f32(v));
  } else {
    run.out = out.values();
  }
  return run;
}

DecodeCase::Expected DecodeCase::expected(const float* x, int32_t slot) const {
  const Weight& weight = weight_of(slot);
  const auto outputs = static_cast<size_t>(weight.shape.outputs());
  const int64_t columns = shape_.columns;
  const double u = std::ldexp(1, -24);
  // A sum of `columns` exact products in fp32, then the splits' additions, in any order: Higham's
  // γ.
  const double steps = static_cast<double>(columns) + 264;
  const double gamma = steps * u / (1 - steps * u);
  double largest = 0, residue = 0, x_size = 0;
  for (int64_t c = 0; c < columns; ++c) largest = std::max(largest, std::abs(double{x[c]}));
  const double scale = largest / 32767;
  for (int64_t c = 0; c < columns; ++c) {
    const double q = scale > 0 ? std::round(x[c] / scale) : 0;
    // A half of a step: fp32 may round it to the other side, at next to no cost.
    residue += std::abs(x[c] - q * scale) + 2 * u * std::abs(double{x[c]});
    x_size += std::abs(double{x[c]});
  }

  Expected all;
  all.y.assign(outputs, 0.0);
  all.error.assign(outputs, 0.0);
  all.delta.assign(outputs, 0.0);
  all.delta_error.assign(outputs, 0.0);
  for (size_t p = 0; p < weight.parts.size(); ++p) {
    const int64_t rows = weight.shape.part_rows[p];
    std::vector<uint16_t> magnitude = weight.parts[p];
    for (uint16_t& v : magnitude) v &= 0x7fff;
    std::vector<float> x_magnitude(x, x + columns);
    for (float& v : x_magnitude) v = std::abs(v);
    const std::vector<double> y = ref::product(weight.parts[p].data(), x, rows, columns);
    const std::vector<double> size =
        ref::product(magnitude.data(), x_magnitude.data(), rows, columns);
    std::vector<double> delta(y.size(), 0.0), delta_error(y.size(), 0.0);
    if (slot >= 0) {
      for (const Level& level : variant(slot)->levels) {
        const std::vector<double> part =
            ref::sign_product({{level.signs[p].data(), level.alpha[p].data()}}, x, rows, columns);
        for (size_t r = 0; r < y.size(); ++r) {
          delta[r] += part[r];
          // 16-bit integers, then the conversion, two products; the addition to y's sum so far.
          delta_error[r] += level.alpha[p][r] * (residue + 4 * u * x_size);
          delta_error[r] += u * (std::abs(y[r] + delta[r]) + gamma * size[r] + delta_error[r]);
        }
      }
    }
    for (size_t r = 0; r < y.size(); ++r) {
      const auto at = static_cast<size_t>(weight.shape.output_of(p, static_cast<int32_t>(r)));
      all.y[at] = y[r] + delta[r];
      all.delta[at] = delta[r];
      all.delta_error[at] = delta_error[r];
      all.error[at] = gamma * size[r] + delta_error[r];
    }
  }
  return all;
}

std::vector<RowGroup> random_groups(int32_t m, const std::vector<int32_t>& slots,
                                    std::mt19937& random) {
  // Each row draws its slot; sorted, equal ones are a group.
  std::vector<int32_t> of_row;
  for (int32_t r = 0; r < m; ++r) of_row.push_back(slots[random() % slots.size()]);
  std::sort(of_row.begin(), of_row.end());
  std::vector<RowGroup> groups;
  for (int32_t r = 0; r < m; ++r) {
    if (r == 0 || of_row[static_cast<size_t>(r)] != groups.back().slot) {
      groups.push_back({r, r, of_row[static_cast<size_t>(r)]});
    }
    groups.back().end_row = r + 1;
  }
  return groups;
}

}  // namespace deltad::cuda
