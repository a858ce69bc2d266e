// LayerWalk: carries the activations of many sequences through a model one layer at a time, for the
// base, for a fine-tune of it and for the fine-tune's compressed form, on the model's own
// transformer and ops. In memory at a time: one layer of the base, what the other two change in it,
// and the activations. One thread calls; kernels and reading use several.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "delta/layer_fitter.h"
#include "delta/tune.h"
#include "model/checkpoint.h"
#include "model/transformer.h"
#include "model/weight_table.h"
#include "tensor/buffer.h"

namespace deltad {

enum class WalkedModel { kBase, kTune, kVariant };
// What enters the linear layers of a block: of q, k and v; of o; of gate and up; of down.
enum class LayerInput { kAttention, kAttentionOut, kMlp, kDown };
constexpr int kLayerInputs = 4;
LayerInput input_of(const std::string& weight);

using TokenSequence = std::vector<int32_t>;

// Values that enter linear layers: [rows, columns] of the backend's activations, for each
// LayerInput.
struct LayerInputs {
  struct Values {
    int64_t columns = 0;
    DType type = DType::kF32;
    Buffer x;
  };
  std::array<Values, kLayerInputs> of;
};

// The residual stream of all tokens, in order of sequences: fp32 [tokens, stride].
struct Activations {
  const std::vector<TokenSequence>* sequences = nullptr;
  int64_t tokens = 0;
  Buffer residual;
};

class LayerWalk {
 public:
  // The longest sequence that is walked, and the rows of a batch.
  static constexpr int64_t kMaxTokens = 512;

  // base and tune outlive it.
  static Result<std::unique_ptr<LayerWalk>> make(const Checkpoint& base, const Tune& tune,
                                                 int threads);

  // Embeddings of the sequences (of at most kMaxTokens tokens each; they outlive the activations).
  Result<Activations> embed(WalkedModel model, const std::vector<TokenSequence>& sequences) const;
  // Reads a layer of the base and of the fine-tune. kInvalidArgument names the tensor and the row
  // of a value that is not finite.
  Status load_layer(int64_t layer);
  // Matrices of the loaded layer that the fine-tune changes, in the model's order.
  std::vector<std::string> changed_matrices() const;
  // The compressed form of the loaded layer.
  Status set_variant(const std::map<std::string, FittedMatrix>& matrices);
  // Frees what of the loaded layer only the fine-tune needs, once it has run.
  void release_tuned() { tuned_.reset(); }
  // Runs the loaded layer; inputs may be null.
  Status advance(WalkedModel model, Activations* activations, LayerInputs* inputs);
  // After the last layer: what enters the head, fp32 [tokens, H].
  Result<std::vector<float>> final_norm(WalkedModel model, const Activations& activations);

 private:
  LayerWalk(const Checkpoint& base, const Tune& tune, int threads)
      : base_(base), tune_(tune), threads_(threads) {}
  Status load_base_rows();
  int64_t rows_of(const WeightTable::Place& place) const;
  Status put_tuned_dense(const WeightTable::Place& place, const std::string& name,
                         VariantWeights* weights) const;
  // What of the loaded layer the fine-tune changes and a variant carries whole.
  std::vector<std::pair<std::string, WeightTable::Place>> carried() const;
  Result<std::unique_ptr<VariantWeights>> tuned_layer();
  Status make_room(int64_t tokens, LayerInputs* inputs) const;
  void for_each_batch(WalkedModel model, const Activations& activations,
                      const std::function<void(int64_t first, Batch& batch)>& run) const;

  const Checkpoint& base_;
  const Tune& tune_;
  const int threads_;
  ModelConfig config_;  // of one layer
  WeightTable table_;   // of the loaded one
  int64_t layer_ = -1;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> transformer_;
  Buffer cache_;
  KvView kv_{};
  std::vector<int32_t> blocks_;  // 0, 1, …: a batch hands them to its sequences
  std::unique_ptr<VariantWeights> tuned_, variant_;
  std::map<std::string, bool> differs_;  // of the loaded layer
  int64_t stride_ = 0;
};

}  // namespace deltad
