#include "backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <array>
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

Status measure_ranges(const CudaLoading& loading, std::span<CudaMatrix* const> matrices) {
  using Counts = std::array<uint32_t, 256>;
  if (matrices.empty()) return {};
  CudaDevice& device = loading.device;
  RETURN_IF_ERROR(device.use());
  const size_t bytes = matrices.size() * sizeof(Counts);
  constexpr char kPurpose[] = "counts of weights' exponents";
  ASSIGN_OR_RETURN(const DeviceMemory counts,
                   DeviceMemory::make(device, device.load(), bytes, kPurpose));
  ASSIGN_OR_RETURN(const PinnedMemory pinned, PinnedMemory::make(device, bytes, kPurpose));
  for (size_t i = 0; i < matrices.size(); ++i) {
    const CudaMatrix& m = *matrices[i];
    const cuda::WeightRangeParams params = {
        m.storage, counts.at<uint32_t>(i * sizeof(Counts)),
        cuda::base_tiles_size(m.outputs(), static_cast<int32_t>(m.columns))};
    RETURN_IF_ERROR(loading.kernels.launch(device.load(), cuda::kWeightRangeKernel,
                                           cuda::weight_range_launch(params), params));
  }
  Status copied = CUDA_STATUS(
      device,
      cudaMemcpyAsync(pinned.data(), counts.data(), bytes, cudaMemcpyDeviceToHost, device.load()),
      "copying counts of weights' exponents to the host");
  // Also when the copy failed: what is pinned goes with this call.
  const Status waited = loading.ring.wait();
  if (!waited.ok()) (void)cudaStreamSynchronize(device.load());
  if (copied.ok()) copied = waited;
  RETURN_IF_ERROR(copied);
  for (size_t i = 0; i < matrices.size(); ++i)
    matrices[i]->range = cuda::weight_range(static_cast<const Counts*>(pinned.data())[i]);
  return {};
}

}  // namespace deltad
