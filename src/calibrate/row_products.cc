#include "calibrate/row_products.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kColumnUnit = 64;

}  // namespace

uint16_t* TileRoom::of(int64_t values) {
  const size_t bytes = static_cast<size_t>(values) * sizeof(uint16_t);
  if (buffer_.bytes() < bytes) {
    Result<Buffer> grown = Buffer::cpu(bytes);
    if (!grown.ok()) throw std::bad_alloc();
    buffer_ = std::move(*grown);
  }
  return data();
}

Result<RowProducts> RowProducts::make(Isa isa, const void* x, int64_t rows, int64_t columns,
                                      int64_t stride) {
  RowProducts made;
  made.isa_ = isa;
  made.rows_ = rows;
  made.columns_ = (columns + kColumnUnit - 1) / kColumnUnit * kColumnUnit;
  const auto size = static_cast<int64_t>(dtype_size(type(isa)));
  for (int64_t r = 0; r < rows; ++r)
    made.x_rows_.push_back(static_cast<const char*>(x) + r * stride * size);
  cpu::LinearJob job{};
  job.tiles = 1;
  job.columns = made.columns_;
  job.m = static_cast<int32_t>(rows);
  const cpu::LinearKernels& kernels = cpu::linear_kernels(isa);
  const size_t bytes = kernels.prepared_bytes(job);
  if (bytes == 0 || columns != made.columns_) {
    ASSIGN_OR_RETURN(made.x_, Buffer::cpu(static_cast<size_t>(rows * made.columns_ * size)));
    for (int64_t r = 0; r < rows; ++r) {
      const void*& row = made.x_rows_[static_cast<size_t>(r)];
      char* to = made.x_.as<char>() + r * made.columns_ * size;
      row = std::memcpy(to, row, static_cast<size_t>(columns * size));
    }
  }
  if (bytes == 0) return made;
  job.x = made.x_rows_.data();
  ASSIGN_OR_RETURN(made.prepared_, Buffer::cpu(bytes));
  kernels.prepare(job, made.prepared_.data(), 0, kernels.prepare_units(job));
  made.x_ = Buffer();
  std::fill(made.x_rows_.begin(), made.x_rows_.end(), nullptr);
  return made;
}

Result<RowProducts> RowProducts::rounded(Isa isa, const float* x, int64_t rows, int64_t columns) {
  if (type(isa) == DType::kF32) return make(isa, x, rows, columns, columns);
  std::vector<uint16_t> narrow(static_cast<size_t>(rows * columns));
  std::transform(x, x + narrow.size(), narrow.begin(), [](float v) { return f32_to_bf16(v); });
  return make(isa, narrow.data(), rows, columns, columns);
}

void RowProducts::times(const uint16_t* w, int64_t outputs, float* out, int64_t stride,
                        ProductScratch* scratch) const {
  scratch->rows.resize(static_cast<size_t>(rows_));
  for (int64_t r = 0; r < rows_; ++r) scratch->rows[static_cast<size_t>(r)] = out + r * stride;
  cpu::LinearJob job{};
  job.w = w;
  job.tiles = cpu::padded_rows(outputs) / cpu::kTileRows;
  job.columns = columns_;
  job.rows = outputs;
  job.m = static_cast<int32_t>(rows_);
  job.x = x_rows_.data();
  job.out = scratch->rows.data();
  job.epilogue = cpu::LinearEpilogue::kStore;
  const cpu::LinearKernels& kernels = cpu::linear_kernels(isa_);
  if (const size_t bytes = kernels.worker_bytes(job); scratch->worker.bytes() < bytes) {
    Result<Buffer> worker = Buffer::cpu(bytes);
    if (!worker.ok()) throw std::bad_alloc();
    scratch->worker = std::move(*worker);
  }
  kernels.run(job, prepared_.data(), scratch->worker.data(), 0, job.tiles);
}

}  // namespace deltad
