#include "tests/support/cuda_on_cpu/runtime/communicator.h"

#include <algorithm>
#include <cstring>

#include "tensor/float16.h"

namespace deltad::emulated_gpu {
namespace {

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclSum:
      return static_cast<T>(a + b);
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
  }
  return a;
}

// Of one element; 16-bit floats are rounded after each rank.
void combine(ncclDataType_t type, ncclRedOp_t op, std::byte* into, const std::byte* other) {
  const auto with = [&]<class T>(T) {
    T a, b;
    std::memcpy(&a, into, sizeof a);
    std::memcpy(&b, other, sizeof b);
    a = combine(op, a, b);
    std::memcpy(into, &a, sizeof a);
  };
  if (type == ncclFloat32) return with(float{});
  if (type == ncclFloat64) return with(double{});
  if (type == ncclInt32) return with(int32_t{});
  if (type == ncclInt64) return with(int64_t{});
  uint16_t a, b;
  std::memcpy(&a, into, sizeof a);
  std::memcpy(&b, other, sizeof b);
  a = f32_to_bf16(combine(op, bf16_to_f32(a), bf16_to_f32(b)));
  std::memcpy(into, &a, sizeof a);
}

std::vector<std::byte> reduced(const CollectiveCall& call,
                               const std::vector<const std::byte*>& sent) {
  const size_t size = element_bytes(call.type), ranks = sent.size();
  const size_t chunk = (call.count + ranks - 1) / ranks;
  std::vector<std::byte> result(call.count * size);
  for (size_t i = 0; i < call.count; ++i) {
    std::byte* here = &result[i * size];
    const size_t first = (i / chunk + 1) % ranks;
    std::memcpy(here, sent[first] + i * size, size);
    for (size_t r = 1; r < ranks; ++r) {
      combine(call.type, call.op, here, sent[(first + r) % ranks] + i * size);
    }
  }
  return result;
}

}  // namespace

size_t element_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    case ncclBfloat16:
      return 2;
    default:
      return 0;
  }
}

std::string CollectiveCall::text() const {
  constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclBroadcast", "ncclReduce",
                                    "ncclSend and ncclRecv"};
  return std::string(kNames[static_cast<size_t>(kind)]) + " of " + std::to_string(count) +
         " elements of type " + std::to_string(type) + ", operation " + std::to_string(op) +
         ", root " + std::to_string(root);
}

namespace {

// What `from` and `to` say of what goes from one to the other.
std::vector<Transfer> between(const RanksCollective& exchange, int of, int peer, bool sends) {
  std::vector<Transfer> all;
  for (const Transfer& transfer : exchange.by_rank.at(of).second.transfers)
    if (transfer.peer == peer && transfer.sends == sends) all.push_back(transfer);
  return all;
}

void run_exchange(Gpu& gpu, const RanksCollective& exchange) {
  for (const auto& [from, sender] : exchange.by_rank) {
    for (const auto& [to, receiver] : exchange.by_rank) {
      const auto sent = between(exchange, from, to, true);
      const auto received = between(exchange, to, from, false);
      for (size_t i = 0; i < sent.size(); ++i) {
        const size_t bytes = sent[i].count * element_bytes(sent[i].type);
        const std::byte* source = gpu.memory.touch(*sender.first, sent[i].buffer, bytes, false);
        std::byte* target = gpu.memory.touch(*receiver.first, received[i].buffer, bytes, true);
        if (source == nullptr || target == nullptr) return;
        std::memcpy(target, source, bytes);
      }
    }
  }
}

}  // namespace

std::string mismatch(const RanksCollective& exchange) {
  for (const auto& [from, sender] : exchange.by_rank) {
    for (const auto& [to, receiver] : exchange.by_rank) {
      const auto sent = between(exchange, from, to, true);
      const auto received = between(exchange, to, from, false);
      const bool fits = std::equal(sent.begin(), sent.end(), received.begin(), received.end(),
                                   [](const Transfer& a, const Transfer& b) {
                                     return a.count == b.count && a.type == b.type;
                                   });
      if (!fits)
        return "what rank " + std::to_string(from) + " sends to rank " + std::to_string(to) +
               " is not what that receives";
    }
  }
  return "";
}

void run_collective(Gpu& gpu, const RanksCollective& collective) {
  if (collective.call.kind == CollectiveKind::kExchange) return run_exchange(gpu, collective);
  const CollectiveCall& call = collective.call;
  const size_t bytes = call.count * element_bytes(call.type);
  const bool from_root = call.kind == CollectiveKind::kBroadcast;
  const bool to_root = call.kind == CollectiveKind::kReduce;
  std::vector<const std::byte*> sent;
  for (const auto& [rank, part] : collective.by_rank) {
    if (from_root && rank != call.root) continue;
    sent.push_back(gpu.memory.touch(*part.first, part.second.send, bytes, false));
    if (sent.back() == nullptr) return;
  }
  std::vector<std::byte> result;
  if (call.kind == CollectiveKind::kAllReduce || to_root) {
    result = reduced(call, sent);
  } else {
    for (const std::byte* from : sent) result.insert(result.end(), from, from + bytes);
  }
  for (const auto& [rank, part] : collective.by_rank) {
    if (to_root && rank != call.root) continue;
    std::byte* to = gpu.memory.touch(*part.first, part.second.receive, result.size(), true);
    if (to == nullptr) return;
    std::memcpy(to, result.data(), result.size());
  }
}

}  // namespace deltad::emulated_gpu
