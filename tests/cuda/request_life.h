// A request's life on an emulated GPU, as the daemon has it and tiny: two variants are loaded, a
// request of each is served by the engine, they are evicted, one of them to the host's memory, from
// where it comes back for another request. It can be lived again and again on one
// engine. Its thread and the engine's take turns, so that calls come in one order.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/cuda/emulated_world.h"
#include "tests/support/random_model.h"
#include "tests/unit/engine/recorder.h"

namespace deltad::testing {

// The files of its model: one block, everything as small as it can be.
class RequestFiles {
 public:
  RequestFiles() {
    ModelConfig config;
    config.hidden = 32;
    config.layers = 1;
    config.heads = 2;
    config.kv_heads = 1;
    config.head_dim = 8;
    config.intermediate = 32;
    config.vocab = 64;
    config.max_positions = 32;
    config.tied_head = true;
    write_random_model(base_, config, 1);
    write_random_delta(base_.file("delta"), config, {1, false, true, 3}, 2);
    write_random_lora(lora_, config, 2, 3);
  }
  std::string base() const { return base_.path(); }
  std::string delta() const { return base_.file("delta"); }
  std::string lora() const { return lora_.path(); }

 private:
  TempFolder base_, lora_;
};

class RequestLife {
 public:
  // patience: of several GPUs' ranks. make: how they come together, if not by themselves.
  explicit RequestLife(const RequestFiles& files, int gpus = 1,
                       Duration patience = std::chrono::seconds(600), MakeRanks make = nullptr)
      : files_(files),
        gpus_(gpus),
        patience_(patience),
        make_(make ? std::move(make) : make_ranks(gpus, patience)) {}

  Status start() {
    if (gpus_ > 1) {
      ASSIGN_OR_RETURN(base_, load_base_model(files_.base(), make_, nullptr));
    } else {
      ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, make_cuda_backend({0, 1}));
      ASSIGN_OR_RETURN(base_, load_base_model(files_.base(), std::move(backend), nullptr));
    }
    // For one variant, so that a copy that is lost is missed by the next.
    ASSIGN_OR_RETURN(const VariantSize size,
                     measure_variant(files_.delta(), base_->table, base_->weights(), {}));
    const size_t pages = size_t{4096} * static_cast<size_t>(gpus_);
    const size_t host_bytes = (static_cast<size_t>(size.bytes) + pages - 1) / pages * pages;
    RETURN_IF_ERROR(base_->weights().reserve_host(host_bytes).status());
    EngineOptions options;
    options.kv_bytes = 64 << 10;
    options.max_step_rows = 8;
    options.max_running = 2;
    options.prefix_cache = false;  // each life computes the same
    options.stall_seconds = seconds(patience_);
    ASSIGN_OR_RETURN(engine_, Engine::make(*base_, options));
    return {};
  }
  // The first error. tokens(): of both requests. A step of generated rows comes often enough to be
  // a graph.
  Status live() {
    tokens_.clear();
    RETURN_IF_ERROR(load_and_serve(files_.delta(), 4, true));
    return load_and_serve(files_.lora(), 2, false);
  }
  // A request whose tokens the host chooses.
  Status live_on_host() {
    tokens_.clear();
    return load_and_serve(files_.lora(), 6, false, 40);
  }
  void end() {
    engine_.reset();
    base_.reset();
  }

  // For who breaks what takes memory.
  void do_not_count_memory() { counts_memory_ = false; }
  // What the GPUs hold is what they are said to hold.
  void check_memory(const char* when, size_t variant = 0) const {
    if (!counts_memory_) return;
    size_t held = 0;
    for (int gpu = 0; gpu < gpus_; ++gpu) held += emulated_gpu::allocated_bytes(gpu);
    EXPECT_EQ(held, accounted() + variant) << when;
  }

  const std::vector<int32_t>& tokens() const { return tokens_; }
  Status health() const { return engine_->device_health(); }
  // What the GPUs are said to hold now, without a variant.
  size_t accounted() const {
    const EngineStats stats = engine_->stats();
    const AttentionShape shape{2, 1, 8, 0, 0, 0, 1};  // each rank has the one KV head
    Backend& backend = gpus_ > 1 ? base_->parallel->backend(0) : *base_->backend;
    const int64_t block = gpus_ * backend.ops().kv_block_bytes(shape, 16);
    return base_->weights().weight_bytes() + stats.workspace_bytes +
           static_cast<size_t>(stats.kv_blocks * block);
  }

 private:
  // comes_back: it is copied to the host and from there before it is evicted.
  Status load_and_serve(const std::string& path, int32_t tokens, bool comes_back,
                        int32_t logprobs = -1) {
    VariantLoadOptions options;
    options.threads = 1;
    ASSIGN_OR_RETURN(VariantRef variant,
                     load_variant("v", path, base_->table, base_->weights(), options));
    check_memory("a variant is loaded", variant->bytes);
    RETURN_IF_ERROR(serve(variant, tokens, logprobs));
    if (comes_back) {
      ASSIGN_OR_RETURN(VariantRef copy, copy_to_host(*variant));
      check_memory("a variant was copied to the host", variant->bytes);
      variant.reset();
      check_memory("it lies on the host");
      const std::atomic<bool> cancelled{false};
      ASSIGN_OR_RETURN(variant, restore_variant(*copy, base_->weights(), cancelled));
      check_memory("it is back", variant->bytes);
      copy.reset();
      RETURN_IF_ERROR(serve(variant, 1));
    }
    variant.reset();
    check_memory("the variant is evicted");
    return {};
  }
  Status serve(const VariantRef& variant, int32_t tokens, int32_t logprobs = -1) {
    const auto record = std::make_shared<Record>();
    auto ended = std::make_shared<std::atomic<bool>>(false);
    // Ranks have a step without logits, too.
    const std::vector<int32_t> prompt = gpus_ > 1
                                            ? std::vector<int32_t>{5, 9, 3, 7, 1, 8, 2, 6, 4, 11}
                                            : std::vector<int32_t>{5, 9, 3};
    Request request = make_request(prompt, tokens, record);
    request.variant = variant;
    request.logprobs = logprobs;
    request.on_event = [record, ended](const TokenEvent& event) {
      record->take(event);
      if (event.kind == TokenEvent::Kind::kFinished) ended->store(true);
    };
    RETURN_IF_ERROR(engine_->submit(std::move(request)).status());
    // Until the engine has let go of the variant, and sleeps.
    const auto busy = [&] {
      const EngineStats stats = engine_->stats();
      return !ended->load() || variant.use_count() > 1 || stats.running + stats.waiting > 0;
    };
    while (busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!record->end.status.ok()) return record->end.status;
    check_memory("a request was served", variant->bytes);
    tokens_.insert(tokens_.end(), record->tokens.begin(), record->tokens.end());
    return {};
  }
  const RequestFiles& files_;
  const int gpus_;
  const Duration patience_;
  const MakeRanks make_;
  bool counts_memory_ = true;
  std::unique_ptr<BaseModel> base_;
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> tokens_;
};

}  // namespace deltad::testing
