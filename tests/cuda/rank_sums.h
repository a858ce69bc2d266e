// Sums of ranks on GPUs that have no model: parts that are made up, and what each rank then has.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"

namespace deltad::testing {

class RankSums {
 public:
  static Result<RankSums> make(int ranks, CommunicatorChoice choice,
                               Duration bound = std::chrono::seconds(600)) {
    RankSums made;
    ASSIGN_OR_RETURN(made.ranks_, make_cuda_ranks(ranks, bound, choice, bound));
    return made;
  }

  struct Shape {
    int64_t rows, columns;
  };
  // The parts of all ranks, added to what out held, [rows, columns] in rows of a multiple of 16
  // each. What each rank then has; nothing, if it has failed or is one of those below.
  std::vector<std::vector<float>> add(Shape shape, int first_row = 0) {
    std::vector<std::vector<float>> sums(ranks_.backends.size());
    buffers_.clear();
    buffers_.resize(2 * sums.size());
    std::vector<std::thread> threads;
    statuses.assign(sums.size(), Status());
    for (size_t r = 0; r < sums.size(); ++r)
      if (r != absent)
        threads.emplace_back([&, r] {
          statuses[r] = add_of(static_cast<int>(r), shape, first_row, &buffers_[2 * r], sums[r]);
          if (!statuses[r].ok()) communicator(r).fail(statuses[r]);
        });
    for (std::thread& thread : threads) thread.join();
    return sums;
  }
  Communicator& communicator(size_t rank) { return *ranks_.communicators[rank]; }

  std::vector<Status> statuses;  // of the last add(), by rank
  size_t absent = SIZE_MAX;      // a rank that does not come
  size_t unsettled = SIZE_MAX;   // a rank that does not wait for its result
  int sums_at_once = 1;          // of the same part, before it is waited for

  static float value(int rank, int64_t row, int64_t column) {
    const int64_t n = (rank * 7919 + row * 104729 + column * 1299709) % 100003;
    return std::ldexp(static_cast<float>(n - 50000), static_cast<int>(n % 40) - 20);
  }

 private:
  RankSums() = default;
  Status add_of(int rank, Shape shape, int first_row, Buffer* buffers, std::vector<float>& sum) {
    Backend& backend = *ranks_.backends[static_cast<size_t>(rank)];
    const int64_t stride = (shape.columns + 15) / 16 * 16;
    TensorView views[2];
    for (int i = 0; i < 2; ++i) {
      std::vector<float> values(static_cast<size_t>(shape.rows * stride), 0);
      for (int64_t row = 0; row < shape.rows; ++row)
        for (int64_t c = 0; c < shape.columns; ++c)
          values[static_cast<size_t>(row * stride + c)] =
              value(i == 0 ? rank : 99, first_row + row, c);
      ASSIGN_OR_RETURN(buffers[i], backend.allocate(values.size() * sizeof(float)));
      RETURN_IF_ERROR(backend.upload(buffers[i].data(), values.data(), buffers[i].bytes()));
      views[i] = matrix_view(buffers[i].data(), DType::kF32, shape.rows, shape.columns, stride,
                             DeviceKind::kCuda);
    }
    Communicator& of_rank = communicator(static_cast<size_t>(rank));
    for (int i = 0; i < sums_at_once; ++i)
      RETURN_IF_ERROR(of_rank.all_reduce(views[1], views[0], Epilogue::kAddResidual));
    if (static_cast<size_t>(rank) == unsettled) return {};
    RETURN_IF_ERROR(of_rank.settle());
    sum.resize(static_cast<size_t>(shape.rows * stride));
    if (cudaMemcpy(sum.data(), views[1].data, sum.size() * sizeof(float), cudaMemcpyDeviceToHost) !=
        cudaSuccess)
      return internal_error("cudaMemcpy");
    return {};
  }

  CudaRanks ranks_;
  std::vector<Buffer> buffers_;  // of the last add()
};

}  // namespace deltad::testing
