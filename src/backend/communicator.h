// Communicator: what the ranks of tensor parallelism tell each other during a step. Each rank has
// one and calls it from the thread that calls its Ops, all ranks in the same order with the same
// shapes. Like Ops, a call returns when its result is there (CPU) or ordered on the step's stream
// (CUDA). After the first failure every call of every rank gives that error at once, for good; who
// gets it stops there, because the others may still be reading its memory.
#pragma once

#include <cstddef>

#include "backend/ops.h"
#include "base/status.h"
#include "tensor/tensor_view.h"

namespace deltad {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sum = Σ part over the ranks, added in the order of the ranks whatever the size, so that every
  // rank has the same bits. kStore: out = Sum; kAddResidual: out += Sum. Both fp32 [M, N], of
  // different memory.
  virtual Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) = 0;
  // out fp32 [M, ΣN]: the parts, fp32 [M, N] of each rank, side by side in the order of the ranks.
  // N may differ from rank to rank.
  virtual Status all_gather(TensorView out, TensorView part) = 0;
  // What rank `root` has at data, on all of them.
  virtual Status broadcast(void* data, size_t bytes, int root) = 0;

  // This rank cannot go on: all of them get an error that says why, and which rank it was.
  virtual void fail(const Status& why) = 0;
  // The first failure. Any thread.
  virtual Status status() const = 0;
};

}  // namespace deltad
