#include "backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/weight_rows.h"
#include "kernels/cuda/repack.h"

namespace deltad {

size_t storage_bytes(const CudaMatrix& matrix, WeightKind kind) {
  if (kind == WeightKind::kVector) return static_cast<size_t>(matrix.rows) * sizeof(uint16_t);
  return static_cast<size_t>(
             cuda::base_tiles_size(matrix.outputs(), static_cast<int32_t>(matrix.columns))) *
         16;
}

cuda::TileRows tiles_from(const WeightSpec& spec, int part, int64_t first) {
  const PartTiles tiles = tiles_of(spec, part);
  return {static_cast<int32_t>(tiles.first + first / 16 * tiles.step),
          static_cast<int32_t>(tiles.step)};
}

Status put_values(const CudaLoading& loading, const CudaMatrix& to, const WeightSpec& spec,
                  int part, int64_t first, int64_t count, const uint16_t* values) {
  if (spec.kind == WeightKind::kVector)
    return loading.ring.copy(static_cast<uint16_t*>(to.storage) + spec.part_offset(part) + first,
                             values, static_cast<size_t>(count) * sizeof(uint16_t));
  const size_t row_bytes = static_cast<size_t>(spec.columns) * sizeof(uint16_t);
  const auto fit = static_cast<int64_t>(LoadRing::kPieceBytes / row_bytes / 16 * 16);
  for (int64_t at = 0; at < count; at += fit) {
    const int64_t rows = std::min(fit, count - at);
    const size_t bytes = static_cast<size_t>(rows) * row_bytes;
    RETURN_IF_ERROR(loading.ring.pass(
        [&](void* pinned) { std::memcpy(pinned, values + at * spec.columns, bytes); },
        [&](const LoadRing::Copy& piece) -> Status {
          RETURN_IF_ERROR(CUDA_STATUS(loading.device,
                                      cudaMemcpyAsync(piece.staging, piece.pinned, bytes,
                                                      cudaMemcpyHostToDevice, piece.stream),
                                      "copying rows of a weight to the device"));
          const cuda::RepackBaseParams params = {
              static_cast<const uint16_t*>(piece.staging), to.storage, static_cast<int32_t>(rows),
              static_cast<int32_t>(spec.columns), tiles_from(spec, part, first + at)};
          return loading.kernels.launch(piece.stream, cuda::kRepackBaseKernel,
                                        cuda::repack_base_launch(params), params);
        }));
  }
  return {};
}

void CudaExponents::add(const cuda::ExponentCounts& counts) {
  for (size_t e = 0; e < counts.size(); ++e)
    if (counts[e] > 0) counts_.push_back(static_cast<uint32_t>(e) << kCountBits | counts[e]);
  ends_.push_back(static_cast<uint32_t>(counts_.size()));
}

cuda::ExponentCounts CudaExponents::operator[](size_t tile) const {
  cuda::ExponentCounts counts{};
  for (uint32_t i = tile == 0 ? 0 : ends_[tile - 1]; i < ends_[tile]; ++i)
    counts[counts_[i] >> kCountBits] = counts_[i] & ((1u << kCountBits) - 1);
  return counts;
}

Status measure_ranges(const CudaLoading& loading, std::span<CudaMatrix* const> matrices) {
  CudaDevice& device = loading.device;
  size_t most = 0;
  for (const CudaMatrix* m : matrices)
    most = std::max(most, static_cast<size_t>(m->outputs() / 16) * sizeof(cuda::ExponentCounts));
  if (most == 0) return {};
  RETURN_IF_ERROR(device.use());
  constexpr char kPurpose[] = "counts of weights' exponents";
  ASSIGN_OR_RETURN(const DeviceMemory counts,
                   DeviceMemory::make(device, device.load(), most, kPurpose));
  std::vector<cuda::ExponentCounts> counted;
  for (CudaMatrix* m : matrices) {
    const auto tiles = static_cast<size_t>(m->outputs() / 16);
    const cuda::WeightRangeParams params = {m->storage, counts.as<uint32_t>(), m->outputs(),
                                            static_cast<int32_t>(m->columns)};
    RETURN_IF_ERROR(loading.kernels.launch(device.load(), cuda::kWeightRangeKernel,
                                           cuda::weight_range_launch(params), params));
    counted.resize(tiles);
    RETURN_IF_ERROR(
        loading.ring.fetch(counted.data(), counts.data(), tiles * sizeof(cuda::ExponentCounts)));
    const std::span<const cuda::ExponentCounts> all(counted);
    m->range = cuda::weight_range(all);
    auto exponents = std::make_shared<CudaExponents>();
    for (const cuda::ExponentCounts& of : all) exponents->add(of);
    m->exponents = std::move(exponents);
  }
  return {};
}

}  // namespace deltad
