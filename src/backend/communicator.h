// Communicator: what the ranks of tensor parallelism tell each other during a step. Each rank has
// one and calls it from the thread that calls its Ops, all ranks in the same order with the same
// shapes. Like Ops, a call returns when its result is there (CPU) or ordered on the step's stream
// (CUDA). After the first failure every call of every rank gives that error at once, for good; who
// gets it stops there, because the others may still be reading its memory.
#pragma once

#include <cstddef>
#include <string>

#include "backend/ops.h"
#include "base/status.h"
#include "tensor/tensor_view.h"

namespace deltad {

// What brings the parts of sums from GPU to GPU.
enum class CommunicatorChoice {
  kAuto,  // their own memory where all of them reach each other's, else NCCL
  kPeer,
  kNccl,
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sum = Σ part over the ranks, added in the order of the ranks whatever the size, so that every
  // rank has the same bits. kStore: out = Sum; kAddResidual: out += Sum. Both fp32 [M, N], of
  // different memory. part is lost, and the others read it until this rank's next call: that one
  // needs other memory for its part, and the one after it may have the same again.
  virtual Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) = 0;
  // Whether it has collect().
  virtual bool collects() const { return false; }
  // Rank 0's out fp32 [M, N] gets the parts fp32 [M, n] of all ranks side by side, in their order;
  // its own part stands there already, at the first columns. `out` is rank 0's, the others give
  // none. part is read as long as that of all_reduce is. All n but the last are multiples of 4, and
  // rows have room up to the next one.
  virtual Status collect(TensorView /*out*/, TensorView /*part*/) {
    return unimplemented("these ranks do not bring logits together");
  }
  // Before a step: waits until this rank has done all that came before, but for the last step where
  // that may go on by itself. The error is as of settle().
  virtual Status begin_step() { return settle(); }
  // Waits until what this rank ordered is done. The error names a rank that has not got there in
  // time.
  virtual Status settle() = 0;

  // This rank cannot go on: all of them get an error that says why, and which rank it was.
  virtual void fail(const Status& why) = 0;
  // The first failure. Any thread.
  virtual Status status() const = 0;

  // Memory on its device, taken with the first steps. Between steps.
  virtual size_t workspace_bytes() const { return 0; }
  // How sums are made, in words; "" where there is one way only.
  virtual std::string description() const { return ""; }
};

}  // namespace deltad
