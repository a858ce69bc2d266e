#include "backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <cstring>

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

}  // namespace deltad
