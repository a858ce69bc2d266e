#include "backend/cuda/cuda_variant_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/cuda/linear_prefill_apart.h"
#include "kernels/cuda/repack.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

std::atomic<uint64_t> next_serial{1};

}  // namespace

CudaVariantWeights::CudaVariantWeights(const CudaLoading& loading, const CudaWeights& base)
    : loading_(loading), base_(base), serial_(next_serial++) {}

Result<std::unique_ptr<CudaVariantWeights>> CudaVariantWeights::make(
    const CudaLoading& loading, const CudaWeights& base, const VariantContent& content) {
  std::unique_ptr<CudaVariantWeights> made(new CudaVariantWeights(loading, base));
  ASSIGN_OR_RETURN(made->plan_, plan_cuda_variant(base, content));
  RETURN_IF_ERROR(made->take_memory());
  RETURN_IF_ERROR(made->place());
  return made;
}

Status CudaVariantWeights::take_memory() {
  RETURN_IF_ERROR(loading_.device.use());
  ASSIGN_OR_RETURN(memory_, DeviceMemory::make(loading_.device, loading_.device.load(), plan_.bytes,
                                               "a variant"));
  return {};
}

CudaVariantWeights::~CudaVariantWeights() {
  if (memory_.bytes() == 0) return;
  (void)loading_.device.use();
  if (!loading_.device.order_after_steps(loading_.device.load()).ok())
    cudaStreamSynchronize(loading_.device.compute());
}

Status CudaVariantWeights::place() {
  dense_.resize(plan_.weights.size());
  low_ranks_.resize(plan_.weights.size());
  alphas_.resize(plan_.weights.size());
  for (size_t id = 0; id < plan_.weights.size(); ++id) {
    const CudaVariantPlace& place = plan_.weights[id];
    low_ranks_[id] = place.low_rank;
    const auto weight = static_cast<WeightId>(id);
    for (size_t l = 0; l < static_cast<size_t>(place.content.levels); ++l)
      alphas_[id][l].resize(static_cast<size_t>(base_.matrix(weight).outputs()));
    if (place.low_rank.ranks > 0) {
      low_ranks_[id].scale = memory_.at<float>(place.scale);
      low_ranks_[id].a = memory_.at<uint16_t>(place.a);
      low_ranks_[id].b = memory_.at<uint16_t>(place.b);
    }
    const std::vector<bool>& replaced = place.content.replaced;
    if (replaced.empty()) continue;
    dense_[id] = place.dense;
    dense_[id].storage = memory_.at<void>(place.dense_at);
    // The parts that are not replaced keep the base's values.
    if (std::find(replaced.begin(), replaced.end(), false) == replaced.end()) continue;
    const size_t bytes = storage_bytes(base_.matrix(weight), base_.spec(weight).kind);
    RETURN_IF_ERROR(
        CUDA_STATUS(loading_.device,
                    cudaMemcpyAsync(dense_[id].storage, base_.matrix(weight).storage, bytes,
                                    cudaMemcpyDeviceToDevice, loading_.device.load()),
                    "copying what a variant keeps of the base"));
  }
  return {};
}

Status CudaVariantWeights::check_level(WeightId weight, int part, int level) const {
  RETURN_IF_ERROR(check_place(base_.specs(), weight, part));
  if (level < 0 || level >= levels(weight))
    return invalid_argument(
        fmt::format("level {} of {}: this variant was made with {} levels", level,
                    base_.spec(weight).parts[static_cast<size_t>(part)].name, levels(weight)));
  return {};
}

Status CudaVariantWeights::put_sign_rows(WeightId weight, int part, int level, int64_t first,
                                         int64_t count, const uint8_t* bits) {
  RETURN_IF_ERROR(check_level(weight, part, level));
  const WeightSpec& spec = base_.spec(weight);
  RETURN_IF_ERROR(
      check_rows_of(spec, part, spec.parts[static_cast<size_t>(part)].rows, first, count));
  const auto row_bytes = static_cast<size_t>((spec.columns + 7) / 8);
  const auto fit = static_cast<int64_t>(LoadRing::kPieceBytes / row_bytes / 16 * 16);
  void* to = memory_.at<void>(at(weight).signs[static_cast<size_t>(level)]);
  for (int64_t from = 0; from < count; from += fit) {
    const int64_t rows = std::min(fit, count - from);
    const size_t bytes = static_cast<size_t>(rows) * row_bytes;
    RETURN_IF_ERROR(loading_.ring.pass(
        [&](void* pinned) {
          std::memcpy(pinned, bits + static_cast<size_t>(from) * row_bytes, bytes);
        },
        [&](const LoadRing::Copy& piece) -> Status {
          RETURN_IF_ERROR(CUDA_STATUS(loading_.device,
                                      cudaMemcpyAsync(piece.staging, piece.pinned, bytes,
                                                      cudaMemcpyHostToDevice, piece.stream),
                                      "copying signs to the device"));
          const cuda::RepackSignsParams params = {
              static_cast<const uint8_t*>(piece.staging), to, static_cast<int32_t>(rows),
              static_cast<int32_t>(spec.columns), tiles_from(spec, part, first + from)};
          return loading_.kernels.launch(piece.stream, cuda::kRepackSignsKernel,
                                         cuda::repack_signs_launch(params), params);
        }));
  }
  return {};
}

// 16 values after the other, as far apart as the part's tiles are.
Status CudaVariantWeights::put_alpha(WeightId weight, int part, int level, const float* alpha) {
  RETURN_IF_ERROR(check_level(weight, part, level));
  constexpr size_t kTileBytes = 16 * sizeof(float);
  constexpr int64_t kFit = LoadRing::kPieceBytes / sizeof(float);
  const WeightSpec& spec = base_.spec(weight);
  const int64_t rows = spec.parts[static_cast<size_t>(part)].rows;
  std::vector<float>& kept =
      alphas_[static_cast<size_t>(weight)][static_cast<size_t>(level)];  // of all parts
  const cuda::TileRows of_part = tiles_from(spec, part, 0);
  for (int64_t r = 0; r < rows; ++r)
    kept[static_cast<size_t>(of_part.output_of(static_cast<int32_t>(r)))] = alpha[r];
  for (int64_t first = 0; first < rows; first += kFit) {
    const auto count = static_cast<size_t>(std::min(kFit, rows - first));
    const size_t tiles = (count + 15) / 16;
    const cuda::TileRows place = tiles_from(spec, part, first);
    auto* to =
        memory_.at<float>(at(weight).alpha[static_cast<size_t>(level)]) + int64_t{16} * place.first;
    RETURN_IF_ERROR(loading_.ring.pass(
        [&](void* pinned) {
          auto* values = static_cast<float*>(pinned);
          std::memcpy(values, alpha + first, count * sizeof(float));
          std::fill(values + count, values + 16 * tiles, 0.0f);
        },
        [&](const LoadRing::Copy& piece) {
          return CUDA_STATUS(loading_.device,
                             cudaMemcpy2DAsync(to, static_cast<size_t>(place.step) * kTileBytes,
                                               piece.pinned, kTileBytes, kTileBytes, tiles,
                                               cudaMemcpyHostToDevice, piece.stream),
                             "copying the scales of signs to the device");
        }));
  }
  return {};
}

Status CudaVariantWeights::put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                                          const uint16_t* values) {
  RETURN_IF_ERROR(check_place(base_.specs(), weight, part));
  const WeightSpec& spec = base_.spec(weight);
  const WeightPart& p = spec.parts[static_cast<size_t>(part)];
  const std::vector<bool>& replaced = at(weight).content.replaced;
  if (replaced.empty() || !replaced[static_cast<size_t>(part)])
    return invalid_argument(fmt::format("{}: this variant was made without values for it", p.name));
  const CudaMatrix& to = dense_[static_cast<size_t>(weight)];
  RETURN_IF_ERROR(
      check_rows_of(spec, part, spec.parts.size() > 1 ? p.rows : to.rows, first, count));
  return put_values(loading_, to, spec, part, first, count, values);
}

// A [ranks, a_stride] with the part's ranks one after the other, B [rows of the part, rank].
Status CudaVariantWeights::put_low_rank(WeightId weight, int part, float scale, const float* a,
                                        const float* b) {
  RETURN_IF_ERROR(check_place(base_.specs(), weight, part));
  const WeightSpec& spec = base_.spec(weight);
  const CudaVariantPlace& place = at(weight);
  const auto p = static_cast<size_t>(part);
  if (place.content.ranks.empty() || place.content.ranks[p] == 0)
    return invalid_argument(fmt::format("{}: this variant was made without low-rank factors for it",
                                        spec.parts[p].name));
  const cuda::LowRankSlot& slot = low_ranks_[static_cast<size_t>(weight)];
  const cuda::LowRankPart& factors = slot.part[place.parts_of[p]];
  const int64_t rank = place.content.ranks[p];
  const std::vector<float> scales(static_cast<size_t>(rank), scale);
  RETURN_IF_ERROR(loading_.ring.copy(memory_.at<float>(place.scale) + factors.first_rank,
                                     scales.data(), scales.size() * sizeof(float)));
  // One row of a factor after the other, rounded and padded, as many as a piece holds.
  const auto put = [&](uint16_t* to, const float* from, int64_t rows, int64_t columns,
                       int64_t stride) -> Status {
    const auto fit =
        static_cast<int64_t>(LoadRing::kPieceBytes / (static_cast<size_t>(stride) * 2));
    for (int64_t first = 0; first < rows; first += fit) {
      const int64_t count = std::min(fit, rows - first);
      RETURN_IF_ERROR(loading_.ring.pass(
          [&](void* pinned) {
            auto* out = static_cast<uint16_t*>(pinned);
            std::fill(out, out + count * stride, uint16_t{0});
            for (int64_t r = 0; r < count; ++r)
              for (int64_t c = 0; c < columns; ++c)
                out[r * stride + c] = f32_to_bf16(from[(first + r) * columns + c]);
          },
          [&](const LoadRing::Copy& piece) {
            return CUDA_STATUS(
                loading_.device,
                cudaMemcpyAsync(to + first * stride, piece.pinned,
                                static_cast<size_t>(count * stride) * sizeof(uint16_t),
                                cudaMemcpyHostToDevice, piece.stream),
                "copying low-rank factors to the device");
          }));
    }
    return {};
  };
  RETURN_IF_ERROR(put(memory_.at<uint16_t>(place.a) + factors.first_rank * slot.a_stride, a, rank,
                      spec.columns, slot.a_stride));
  return put(memory_.at<uint16_t>(place.b) + factors.b, b, spec.parts[p].rows, rank, factors.rank);
}

void CudaVariantWeights::alias_weight(WeightId to, WeightId from) {
  MutexLock lock(mutex_);
  aliases_.emplace_back(to, from);
}

Status CudaVariantWeights::copy_aliases() {
  MutexLock lock(mutex_);
  for (const auto& [to, from] : aliases_) {
    RETURN_IF_ERROR(check_alias(base_.specs(), to, from));
    dense_[static_cast<size_t>(to)] = dense_[static_cast<size_t>(from)];
    low_ranks_[static_cast<size_t>(to)] = low_ranks_[static_cast<size_t>(from)];
  }
  aliases_.clear();
  return {};
}

Status CudaVariantWeights::measure_dense() {
  std::vector<CudaMatrix*> measured;
  for (size_t id = 0; id < dense_.size(); ++id)
    if (dense_[id].storage != nullptr &&
        base_.spec(static_cast<WeightId>(id)).kind == WeightKind::kMatrix)
      measured.push_back(&dense_[id]);
  return measure_ranges(loading_, measured);
}

// What the kernels of prompts make of the scales beside the weight that the variant's rows read.
Result<std::vector<uint8_t>> CudaVariantWeights::apart(WeightId weight) const {
  const CudaMatrix& own = dense(weight);
  const CudaMatrix& beside = own.storage != nullptr ? own : base_.matrix(weight);
  const WeightSpec& spec = base_.spec(weight);
  std::vector<const float*> alpha;
  for (size_t l = 0; l < static_cast<size_t>(levels(weight)); ++l)
    alpha.push_back(alphas_[static_cast<size_t>(weight)][l].data());
  std::vector<cuda::FusedPart> parts;
  for (size_t p = 0; p < spec.parts.size(); ++p) {
    const auto rows = static_cast<int32_t>(spec.parts[p].rows);
    const cuda::FusedPart part = {tiles_from(spec, static_cast<int>(p), 0), rows};
    float largest = 0;
    for (const float* level : alpha) {
      float of_level = 0;
      for (int32_t r = 0; r < rows; ++r)
        of_level = std::max(of_level, std::fabs(level[part.at.output_of(r)]));
      largest += of_level;
    }
    if (const float limit = cuda::prefill_alpha_limit(beside.range); largest > limit)
      return unimplemented(
          fmt::format("{}: the scales of a row's signs add up to {}; beside these weights the "
                      "GPU's kernels take up to {}",
                      spec.parts[p].name, largest, limit));
    parts.push_back(part);
  }
  return cuda::prefill_apart(*beside.exponents, beside.range, static_cast<int32_t>(spec.columns),
                             parts, alpha);
}

Status CudaVariantWeights::finish(const std::atomic<bool>* cancelled) {
  RETURN_IF_ERROR(copy_aliases());
  RETURN_IF_ERROR(measure_dense());
  std::vector<uint8_t> apart_of(base_.apart_entries(), 0);
  for (size_t id = 0; id < plan_.weights.size(); ++id) {
    const auto weight = static_cast<WeightId>(id);
    if (levels(weight) == 0) continue;
    if (cancelled != nullptr && *cancelled)
      return deltad::cancelled("nobody waits for it any more");
    ASSIGN_OR_RETURN(const std::vector<uint8_t> entries, apart(weight));
    std::copy(entries.begin(), entries.end(),
              apart_of.begin() + static_cast<std::ptrdiff_t>(base_.apart_at(weight)));
  }
  alphas_.clear();
  RETURN_IF_ERROR(
      loading_.ring.copy(memory_.at<void>(plan_.apart_entries), apart_of.data(), apart_of.size()));
  return put_entries();
}

// What the kernels' tables will say of it: addresses. Returns when all of it is on the device.
Status CudaVariantWeights::put_entries() {
  std::vector<cuda::SignSlot> signs(plan_.weights.size());
  std::vector<cuda::DenseSlot> dense(plan_.weights.size());
  std::vector<const void*> tables(plan_.weights.size());
  for (size_t id = 0; id < plan_.weights.size(); ++id) {
    const CudaVariantPlace& place = plan_.weights[id];
    for (size_t l = 0; l < static_cast<size_t>(place.content.levels); ++l) {
      signs[id].signs[l] = memory_.at<void>(place.signs[l]);
      signs[id].alpha[l] = memory_.at<float>(place.alpha[l]);
    }
    tables[id] = dense_[id].storage;
    dense[id] = {dense_[id].storage, dense_[id].outputs()};
  }
  LoadRing& ring = loading_.ring;
  RETURN_IF_ERROR(ring.copy(memory_.at<void>(plan_.sign_entries), signs.data(),
                            signs.size() * sizeof(cuda::SignSlot)));
  RETURN_IF_ERROR(ring.copy(memory_.at<void>(plan_.dense_entries), dense.data(),
                            dense.size() * sizeof(cuda::DenseSlot)));
  RETURN_IF_ERROR(ring.copy(memory_.at<void>(plan_.table_entries), tables.data(),
                            tables.size() * sizeof(void*)));
  RETURN_IF_ERROR(ring.copy(memory_.at<void>(plan_.low_rank_entries), low_ranks_.data(),
                            low_ranks_.size() * sizeof(cuda::LowRankSlot)));
  return ring.wait();
}

Result<std::unique_ptr<VariantImage>> CudaVariantWeights::copy_to_host() const {
  auto image = std::make_unique<CudaVariantImage>();
  ASSIGN_OR_RETURN(image->memory, loading_.host.copy_out(memory_));
  image->plan = plan_;
  image->at = memory_.as<std::byte>();
  image->dense = dense_;
  image->low_ranks = low_ranks_;
  return std::unique_ptr<VariantImage>(std::move(image));
}

Result<std::unique_ptr<CudaVariantWeights>> CudaVariantWeights::restore(
    const CudaLoading& loading, const CudaWeights& base, const CudaVariantImage& image,
    const std::atomic<bool>& cancelled) {
  std::unique_ptr<CudaVariantWeights> made(new CudaVariantWeights(loading, base));
  made->plan_ = image.plan;
  RETURN_IF_ERROR(made->take_memory());
  const Status filled = made->fill_from(image, cancelled);
  // The image may go when this returns.
  if (!filled.ok()) (void)loading.ring.wait();
  RETURN_IF_ERROR(filled);
  return made;
}

Status CudaVariantWeights::fill_from(const CudaVariantImage& image,
                                     const std::atomic<bool>& cancelled) {
  RETURN_IF_ERROR(loading_.host.copy_back(memory_, image.memory, cancelled));
  const auto moved = [&](const auto* was) {
    const auto* at = reinterpret_cast<const std::byte*>(was);
    return memory_.at<std::remove_cvref_t<decltype(*was)>>(static_cast<size_t>(at - image.at));
  };
  dense_ = image.dense;
  for (CudaMatrix& dense : dense_)
    if (dense.storage != nullptr)
      dense.storage = moved(static_cast<const std::byte*>(dense.storage));
  low_ranks_ = image.low_ranks;
  for (cuda::LowRankSlot& slot : low_ranks_) {
    if (slot.ranks == 0) continue;
    slot.scale = moved(slot.scale);
    slot.a = moved(slot.a);
    slot.b = moved(slot.b);
  }
  return put_entries();
}

}  // namespace deltad
