// NCCL's stand-in: what collectives give, in which order, and what is wrong with them.
#include <nccl.h>

#include <functional>
#include <thread>

#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

constexpr int kRanks = 4;

class Nccl : public GpuTest {
 protected:
  Nccl() { start_ranks({}); }
  void start_ranks(Options options) {
    options.devices = kRanks;
    start(options);
  }

  struct Rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    float *send, *receive;               // on the device, kRanks and kRanks² elements
    std::vector<float> result() const {  // waits
      std::vector<float> all(kRanks * kRanks);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(all.data(), receive, all.size() * 4, cudaMemcpyDeviceToHost),
                cudaSuccess);
      return all;
    }
  };
  // act(rank) on a thread for each rank, which sends {rank · 10, rank · 10 + 1, …}.
  static void on_all_ranks(const std::function<void(const Rank&)>& act) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&act, id, r] {
        Rank rank = {r, nullptr, nullptr, nullptr, nullptr};
        EXPECT_EQ(cudaSetDevice(r), cudaSuccess);
        EXPECT_EQ(ncclCommInitRank(&rank.comm, kRanks, id, r), ncclSuccess);
        EXPECT_EQ(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), cudaSuccess);
        EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&rank.send), 4 * kRanks), cudaSuccess);
        EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&rank.receive), 4 * kRanks * kRanks),
                  cudaSuccess);
        std::vector<float> values;
        for (int i = 0; i < kRanks; ++i) values.push_back(static_cast<float>(10 * r + i));
        EXPECT_EQ(cudaMemcpyAsync(rank.send, values.data(), 4 * kRanks, cudaMemcpyHostToDevice,
                                  rank.stream),
                  cudaSuccess);
        act(rank);
        cudaStreamSynchronize(rank.stream);
        cudaFree(rank.send);
        cudaFree(rank.receive);
        cudaStreamDestroy(rank.stream);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(Nccl, CollectivesOfThreads) {
  for (const Options& options : all_orders()) {
    start_ranks(options);
    on_all_ranks([](const Rank& rank) {
      for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(ncclAllReduce(rank.send, rank.receive, kRanks, ncclFloat32, ncclSum, rank.comm,
                                rank.stream),
                  ncclSuccess);
        EXPECT_EQ(rank.result()[3], 60 + 4 * 3);
        ASSERT_EQ(
            ncclAllGather(rank.send, rank.receive, kRanks, ncclFloat32, rank.comm, rank.stream),
            ncclSuccess);
        EXPECT_EQ(rank.result()[2 * kRanks + 1], 21);
        ASSERT_EQ(
            ncclBroadcast(rank.send, rank.receive, kRanks, ncclFloat32, 2, rank.comm, rank.stream),
            ncclSuccess);
        EXPECT_EQ(rank.result()[3], 23);
        ASSERT_EQ(ncclReduce(rank.send, rank.receive, kRanks, ncclFloat32, ncclMax, 1, rank.comm,
                             rank.stream),
                  ncclSuccess);
        EXPECT_EQ(rank.result()[0], rank.rank == 1 ? 30 : 20) << "what was broadcast is left";
      }
      EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
    });
  }
}

TEST_F(Nccl, AGroupOfOneThread) {
  ncclComm_t comms[kRanks];
  ASSERT_EQ(ncclCommInitAll(comms, kRanks, nullptr), ncclSuccess);
  std::vector<cudaStream_t> streams;
  std::vector<int32_t*> data;
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_CUDA(cudaSetDevice(r));
    streams.push_back(stream());
    data.push_back(device_array(1));
    ASSERT_CUDA(cudaMemsetAsync(data[static_cast<size_t>(r)], r + 1, 4, streams.back()));
  }
  for (const bool group : {true, false}) {
    if (group) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    }
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_EQ(ncclAllReduce(data[r], data[r], 1, ncclInt32, ncclSum, comms[r], streams[r]),
                ncclSuccess);
    }
    if (group) {
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      for (size_t r = 0; r < kRanks; ++r) {
        ASSERT_CUDA(cudaStreamSynchronize(streams[r]));
        EXPECT_EQ(values(data[r], 1)[0], 0x0a0a0a0a);
      }
      EXPECT_EQ(report(), "");
    }
  }
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_CUDA(cudaStreamSynchronize(streams[r]));
    EXPECT_EQ(ncclCommDestroy(comms[r]), ncclSuccess);
  }
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>(3, FaultKind::kMisuse)) << "without a group";
}

// The order of a sum follows from the element's place: bits are not those of the order of ranks.
TEST_F(Nccl, SumsGoAroundARing) {
  on_all_ranks([](const Rank& rank) {
    const std::vector<float> values(kRanks, rank.rank == 0 ? 1e8f : rank.rank == 3 ? -1e8f : 1.0f);
    ASSERT_CUDA(
        cudaMemcpyAsync(rank.send, values.data(), 4 * kRanks, cudaMemcpyHostToDevice, rank.stream));
    ASSERT_EQ(ncclAllReduce(rank.send, rank.receive, kRanks, ncclFloat32, ncclSum, rank.comm,
                            rank.stream),
              ncclSuccess);
    const std::vector<float> sums = rank.result();
    // From ranks 1, 2, 3 and 0: 1e8 swallows the ones added to it.
    EXPECT_EQ(std::vector<float>(sums.begin(), sums.begin() + kRanks),
              (std::vector<float>{0, 1, 2, 0}));
    EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
  });
}

TEST_F(Nccl, AWriteBesideACollectiveIsARace) {
  on_all_ranks([](const Rank& rank) {
    cudaStream_t other = nullptr;
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    if (rank.rank == 2) {
      ASSERT_CUDA(cudaMemsetAsync(rank.send, 0, 4, other));
    }
    ASSERT_EQ(ncclAllReduce(rank.send, rank.receive, kRanks, ncclFloat32, ncclSum, rank.comm,
                            rank.stream),
              ncclSuccess);
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(other));
    ASSERT_CUDA(cudaStreamDestroy(other));
    EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
  });
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kRace}) << report();
}

TEST_F(Nccl, RanksThatDisagreeAreFound) {
  on_all_ranks([](const Rank& rank) {
    const size_t count = rank.rank == 3 ? 2 : 4;
    ncclAllReduce(rank.send, rank.receive, count, ncclFloat32, ncclSum, rank.comm, rank.stream);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaErrorLaunchFailure);
    EXPECT_EQ(ncclCommAbort(rank.comm), ncclUnhandledCudaError) << "which says what was before";
  });
  ASSERT_FALSE(faults().empty());
  EXPECT_EQ(expected_faults()[0], FaultKind::kMisuse);
}

// A rank that never comes: the others see that nothing goes on, and leave.
TEST_F(Nccl, RanksThatWaitInVainCanLeave) {
  on_all_ranks([](const Rank& rank) {
    if (rank.rank == 1) {
      EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
      return;
    }
    ASSERT_EQ(ncclAllReduce(rank.send, rank.receive, kRanks, ncclFloat32, ncclSum, rank.comm,
                            rank.stream),
              ncclSuccess);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
    ncclResult_t error = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclSuccess);
    EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  });
}

// A rank whose device breaks learns of it; the others wait until they leave.
TEST_F(Nccl, ARankThatBreaksIsMissed) {
  on_all_ranks([](const Rank& rank) {
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    ASSERT_CUDA(cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0));
    ASSERT_CUDA(cudaLibraryGetKernel(&kernel, library, kScaleKernel));
    auto* data = reinterpret_cast<int32_t*>(rank.send);
    ScaleParams params = {data, data, rank.rank == 2 ? kRanks + 1 : kRanks, 1, 0};
    void* args[] = {&params};
    const cudaLaunchConfig_t config = {{1}, {32}, 0, rank.stream, nullptr, 0};
    ASSERT_CUDA(cudaLaunchKernelExC(&config, kernel, args));
    ncclAllReduce(rank.send, rank.receive, kRanks, ncclFloat32, ncclSum, rank.comm, rank.stream);
    cudaError_t state = cudaErrorNotReady;
    for (int i = 0; i < 100 && state == cudaErrorNotReady; ++i) {
      state = cudaStreamQuery(rank.stream);
    }
    EXPECT_EQ(state, rank.rank == 2 ? cudaErrorIllegalAddress : cudaErrorNotReady);
    ncclCommAbort(rank.comm);
    cudaLibraryUnload(library);
  });
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kKernel});
}

// A graph's collective is another one in each launch.
TEST_F(Nccl, CollectivesInGraphs) {
  on_all_ranks([](const Rank& rank) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_EQ(
        ncclAllReduce(rank.send, rank.send, kRanks, ncclFloat32, ncclSum, rank.comm, rank.stream),
        ncclSuccess);
    ASSERT_CUDA(cudaMemcpyAsync(rank.receive, rank.send, 4 * kRanks, cudaMemcpyDeviceToDevice,
                                rank.stream));
    ASSERT_CUDA(cudaStreamEndCapture(rank.stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph));
    for (int i = 0; i < 2; ++i) ASSERT_CUDA(cudaGraphLaunch(exec, rank.stream));
    EXPECT_EQ(rank.result()[0], 240);
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
  });
}

// Communicators whose calls do not block, in one thread.
class NonBlockingNccl : public Nccl {
 protected:
  void connect() {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_CUDA(cudaSetDevice(r));
      Rank rank = {r, nullptr, nullptr, nullptr, nullptr};
      ncclConfig_t config = kNonBlockingNccl;
      ASSERT_EQ(ncclCommInitRankConfig(&rank.comm, kRanks, id, r, &config), ncclInProgress);
      ASSERT_CUDA(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      ASSERT_CUDA(cudaMalloc(reinterpret_cast<void**>(&rank.send), 4 * kRanks));
      ASSERT_CUDA(cudaMalloc(reinterpret_cast<void**>(&rank.receive), 4 * kRanks * kRanks));
      std::vector<float> values;
      for (int i = 0; i < kRanks; ++i) values.push_back(static_cast<float>(10 * r + i));
      ASSERT_CUDA(cudaMemcpy(rank.send, values.data(), 4 * kRanks, cudaMemcpyHostToDevice));
      ranks_.push_back(rank);
    }
  }
  void wait(const Rank& rank) {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 100 && state == ncclInProgress; ++i)
      ASSERT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
  }
  void wait_for_all() {
    for (const Rank& rank : ranks_) wait(rank);
  }
  bool under_way(const Rank& rank) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
    return state == ncclInProgress;
  }
  void end(bool abort = false) {
    for (const Rank& rank : ranks_) {
      if (abort) {
        EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
      } else {
        EXPECT_EQ(ncclCommFinalize(rank.comm), ncclInProgress);
        if (rank.rank < kRanks - 1) {
          EXPECT_TRUE(under_way(rank)) << "until all have come";
        }
      }
    }
    for (const Rank& rank : ranks_) {
      if (!abort) {
        wait(rank);
        EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
      }
      ASSERT_CUDA(cudaSetDevice(rank.rank));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_CUDA(cudaFree(rank.send));
      ASSERT_CUDA(cudaFree(rank.receive));
      ASSERT_CUDA(cudaStreamDestroy(rank.stream));
    }
    ASSERT_CUDA(cudaSetDevice(0));
    ranks_.clear();
  }
  // Where devices are broken, and every call says so.
  void leave() {
    for (const Rank& rank : ranks_) {
      cudaSetDevice(rank.rank);
      ncclCommAbort(rank.comm);
      cudaStreamSynchronize(rank.stream);
      cudaStreamDestroy(rank.stream);
      cudaFree(rank.send);
      cudaFree(rank.receive);
    }
    cudaSetDevice(0);
    ranks_.clear();
  }
  static ncclResult_t gather(const Rank& rank) {
    EXPECT_EQ(cudaSetDevice(rank.rank), cudaSuccess);
    return ncclAllGather(rank.send, rank.receive, kRanks, ncclFloat32, rank.comm, rank.stream);
  }
  // Each other rank r gets element r of this one.
  static ncclResult_t exchange(const Rank& rank, size_t count = 1) {
    EXPECT_EQ(cudaSetDevice(rank.rank), cudaSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) {
      if (r == rank.rank) continue;
      EXPECT_EQ(ncclSend(rank.send + r, count, ncclFloat32, r, rank.comm, rank.stream),
                ncclSuccess);
      EXPECT_EQ(ncclRecv(rank.receive + r, 1, ncclFloat32, r, rank.comm, rank.stream), ncclSuccess);
    }
    return ncclGroupEnd();
  }

  std::vector<Rank> ranks_;
};

TEST_F(NonBlockingNccl, GathersAndExchanges) {
  for (const Options& options : all_orders()) {
    start_ranks(options);
    connect();
    wait_for_all();
    for (const Rank& rank : ranks_) ASSERT_EQ(gather(rank), ncclInProgress);
    wait_for_all();
    for (const Rank& rank : ranks_) EXPECT_EQ(rank.result()[2 * kRanks + 1], 21);
    for (const Rank& rank : ranks_) ASSERT_EQ(exchange(rank), ncclInProgress);
    wait_for_all();
    for (const Rank& rank : ranks_)
      for (int r = 0; r < kRanks; ++r)
        if (r != rank.rank) {
          EXPECT_EQ(rank.result()[static_cast<size_t>(r)], 10 * r + rank.rank);
        }
    // In place, as NCCL has it: each one's own is where it will be.
    for (const Rank& rank : ranks_) {
      ASSERT_CUDA(cudaSetDevice(rank.rank));
      ASSERT_CUDA(cudaMemcpy(rank.receive + rank.rank, rank.send, 4, cudaMemcpyDeviceToDevice));
      ASSERT_EQ(ncclAllGather(rank.receive + rank.rank, rank.receive, 1, ncclFloat32, rank.comm,
                              rank.stream),
                ncclInProgress);
    }
    wait_for_all();
    for (const Rank& rank : ranks_) EXPECT_EQ(rank.result()[3], 30);
    end();
  }
}

// What comes on the stream before the call has ended comes before it.
TEST_F(NonBlockingNccl, NothingIsOnTheStreamBeforeTheStateWasAskedFor) {
  connect();
  wait_for_all();
  for (const Rank& rank : ranks_) ASSERT_EQ(gather(rank), ncclInProgress);
  const Rank& first = ranks_[0];
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaMemsetAsync(first.receive, 0, 4 * kRanks * kRanks, first.stream));
  EXPECT_EQ(first.result()[1], 0);
  wait_for_all();
  EXPECT_EQ(first.result()[1], 1);
  end();
}

TEST_F(NonBlockingNccl, ASecondCallTooEarlyIsFound) {
  connect();
  EXPECT_EQ(gather(ranks_[0]), ncclInvalidArgument) << "it is not connected yet";
  wait_for_all();
  EXPECT_EQ(gather(ranks_[0]), ncclInProgress);
  EXPECT_EQ(gather(ranks_[0]), ncclInvalidArgument);
  end(true);
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>(2, FaultKind::kMisuse));
}

TEST_F(NonBlockingNccl, SendsThatNobodyReceivesAreFound) {
  connect();
  wait_for_all();
  for (const Rank& rank : ranks_) ASSERT_EQ(exchange(rank, rank.rank == 1 ? 2 : 1), ncclInProgress);
  for (const Rank& rank : ranks_) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ncclCommGetAsyncError(rank.comm, &state);
  }
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaErrorLaunchFailure);
  ASSERT_FALSE(faults().empty());
  EXPECT_NE(faults()[0].what.find("what rank 1 sends to rank 0 is not what that receives"),
            std::string::npos)
      << report();
  leave();
  (void)expected_faults();
}

TEST_F(NonBlockingNccl, MemoryOfAnotherDeviceOrInEachOthersWayIsFound) {
  connect();
  wait_for_all();
  const Rank &a = ranks_[0], &b = ranks_[1];
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(ncclAllGather(b.send, a.receive, 1, ncclFloat32, a.comm, a.stream),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllGather(a.send, a.receive, 1, ncclFloat32, a.comm, b.stream),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllGather(a.receive + 1, a.receive, 1, ncclFloat32, a.comm, a.stream),
            ncclInvalidArgument);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(a.send, 2, ncclFloat32, 1, a.comm, a.stream), ncclSuccess);
  EXPECT_EQ(ncclRecv(a.send + 1, 1, ncclFloat32, 1, a.comm, a.stream), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << "the group has failed";
  EXPECT_EQ(ncclSend(a.send, 2, ncclFloat32, 1, a.comm, a.stream), ncclInvalidUsage);
  end();
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>(5, FaultKind::kMisuse));
}

TEST_F(NonBlockingNccl, WhatHangsEndsWhenAllHaveLeft) {
  connect();
  wait_for_all();
  for (const Rank& rank : ranks_) {
    if (rank.rank == 2) inject({.call = call_count() + 1, .error = 0, .hangs = true});
    ASSERT_EQ(gather(rank), ncclInProgress);
  }
  wait_for_all();
  for (const Rank& rank : ranks_)
    for (int i = 0; i < 20; ++i) ASSERT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
  end(true);  // waits for the streams
}

TEST_F(NonBlockingNccl, ARankThatNeverConnectsIsLeft) {
  inject({.call = call_count() + 8, .error = 0, .hangs = true});  // the second one's
  connect();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(under_way(ranks_[1]));
  end(true);
}

TEST_F(NonBlockingNccl, FailsWithItsDevice) {
  connect();
  wait_for_all();
  inject({.call = call_count() + 1, .error = cudaErrorIllegalAddress, .at_execution = true});
  for (const Rank& rank : ranks_) ASSERT_EQ(gather(rank), ncclInProgress);
  for (const Rank& rank : ranks_)
    while (under_way(rank)) {
    }
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaErrorIllegalAddress);
  ASSERT_CUDA(cudaSetDevice(1));  // where calls themselves do not fail
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(ranks_[0].comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclUnhandledCudaError);
  leave();
}

}  // namespace
}  // namespace deltad::emulated_gpu
